"""Checkers of a final state that a test has made."""

from __future__ import annotations

import pytest

from odradek.simulation import Event, Record, Result, State, checkers


def state(**topics: list[bytes]) -> State:
    """Return a final state with these committed values."""
    committed = {
        name: [Record(name, 0, offset, None, value) for offset, value in enumerate(values)]
        for name, values in topics.items()
    }
    return State(committed, committed, offsets={}, reports=(), durable=(), finished=True)


@pytest.mark.parametrize(
    ("source", "target", "findings"),
    [
        ([b"a", b"b"], [b"b", b"a"], []),
        ([b"a", b"a"], [b"a", b"a"], []),
        ([b"a", b"b"], [b"b"], ["input b'a' of in is not in out"]),
        ([b"a"], [b"a", b"a"], ["input b'a' of in is 2 times in out"]),
        ([b"a", b"a"], [b"a"], ["input b'a' is 2 times in in, and 1 times in out"]),
        ([], [b"a"], ["b'a' in out has no input in in"]),
    ],
)
def test_exactly_once_compares_the_number_of_equal_records(
    source: list[bytes], target: list[bytes], findings: list[str]
) -> None:
    final = state(**{"in": source, "out": target})
    assert list(checkers.exactly_once("in", "out")(final)) == findings


@pytest.mark.parametrize(("events_max", "lines"), [(0, 0), (1, 1), (3, 3), (9, 3)])
def test_explanation_has_the_last_events(events_max: int, lines: int) -> None:
    events = [Event(float(number), "run", f"event {number}") for number in range(3)]
    result = Result(7, [], [], events, "digest", 3.0, 0.1, None)
    shown = [line for line in result.explain(events_max=events_max).splitlines() if "  run " in line]
    assert shown == list(map(str, events[3 - lines :]))
