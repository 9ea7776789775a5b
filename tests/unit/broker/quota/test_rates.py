"""What quotas are measured with."""

from odradek.broker.quota.rates import Rate, TokenBucket

SECOND_MS = 1_000


def test_a_client_that_begins_may_use_what_fits_all_windows() -> None:
    rate = Rate(11, SECOND_MS)
    rate.record(1_000, 0)
    assert rate.per_second(0) == 100.0
    assert rate.throttle_ms(100.0, 0) == 0
    rate.record(500, 0)
    # 150 a second over ten seconds: five more without anything make it 100 again
    assert rate.throttle_ms(100.0, 0) == 5_000


def test_a_rate_is_that_of_the_time_that_was_measured() -> None:
    rate = Rate(11, SECOND_MS)
    for second in range(30):
        rate.record(100, second * SECOND_MS)
    assert rate.per_second(29_999) == 11 * 100 * SECOND_MS / (29_999 - 19_000)
    assert rate.span_ms(29_999) == 10_999


def test_what_is_long_ago_is_forgotten() -> None:
    rate = Rate(2, SECOND_MS)
    rate.record(100, 0)
    assert rate.per_second(1_999) > 0
    assert rate.per_second(2_000) == 0.0
    assert rate.throttle_ms(1.0, 2_000) == 0


def test_one_window_is_never_divided_by_nothing() -> None:
    rate = Rate(1, SECOND_MS)
    assert rate.per_second(0) == 0.0
    rate.record(10, 0)
    assert rate.per_second(0) == 10.0


def test_tokens_come_in_with_time_and_no_more_than_fit() -> None:
    bucket = TokenBucket(11, SECOND_MS)
    assert bucket.tokens(2.0, 0) == 22.0
    bucket.take(30, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 4_000
    assert bucket.tokens(2.0, 1_000) == -6.0
    assert bucket.throttle_ms(2.0, 4_000) == 0
    assert bucket.tokens(2.0, 1_000_000) == 22.0
