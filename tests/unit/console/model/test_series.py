"""Bounded history of charts."""

from __future__ import annotations

from odradek.console.model.series import REST, SERIES_MAX, History, Rates, limited


def test_series_have_gaps_where_a_sample_has_no_value() -> None:
    history = History()
    history.add(1, {"lag": {"a": 1.0}})
    history.add(2, {"lag": {"b": 2.0}})
    history.add(3, {})
    assert history.times() == [1, 2, 3]
    assert history.rows("lag") == {"a": [1, None, None], "b": [None, 2, None]}
    assert history.rows("lag", 1) == {"a": [None, None], "b": [2, None]}
    assert (history.times(2), history.latest("lag"), history.rows("other")) == ([3], {}, {})


def test_samples_and_series_are_bounded() -> None:
    history = History(3)
    for second in range(10):
        history.add(second, {"lag": {f"{second}-{number}": float(number) for number in range(50)}})
        assert len(history.labels("lag")) <= SERIES_MAX + 1
    assert history.times() == [7, 8, 9]
    assert all(len(points) == 3 for points in history.rows("lag").values())


def test_a_series_without_values_in_the_window_is_forgotten() -> None:
    history = History(2)
    history.add(1, {"lag": {"a": 1.0}})
    for second in (2, 3):
        history.add(second, {"lag": {"b": 1.0}})
    assert history.labels("lag") == ["b"]


def test_the_largest_values_are_shown_and_the_others_are_summed() -> None:
    values = {str(number): float(number) for number in range(SERIES_MAX + 3)}
    shown = limited(values, [], adds_up=True)
    assert len(shown) == SERIES_MAX + 1
    assert shown[REST] == 0 + 1 + 2
    assert REST not in limited(values, [], adds_up=False)
    assert "2" in limited(values, ["2"], adds_up=True)  # 2 * 2 > 3
    assert "0" not in limited(values, ["0"], adds_up=True)


def test_rates_are_differences_per_second_without_restarts_and_new_counters() -> None:
    rates = Rates()
    assert rates.of("c", 10, {"a": 5.0, "b": 9.0}) == {}
    assert rates.of("c", 15, {"a": 15.0, "b": 1.0, "new": 7.0}) == {"a": 2.0}
    assert rates.of("c", 15, {"a": 20.0}) == {}
    assert rates.of("c", 16, {"a": 21.0}) == {"a": 1.0}
