"""Rates over windows and token buckets, by which quotas are measured."""

import math

import pytest

from odradek.broker.quota.rates import THROTTLE_MS_MAX, Rate, TokenBucket

SECOND_MS = 1_000


def test_new_client_may_use_the_quota_of_all_windows() -> None:
    rate = Rate(11, SECOND_MS)
    rate.record(1_000, 0)
    assert rate.per_second(0) == 100.0
    assert rate.throttle_ms(100.0, 0) == 0
    rate.record(500, 0)
    # 1,500 units in 10 s are 150 per second; 5 s more without units make it 100 per second.
    assert rate.throttle_ms(100.0, 0) == 5_000


def test_rate_covers_the_measured_time_span() -> None:
    rate = Rate(11, SECOND_MS)
    for second in range(30):
        rate.record(100, second * SECOND_MS)
    assert rate.per_second(29_999) == 11 * 100 * SECOND_MS / (29_999 - 19_000)
    assert rate.span_ms(29_999) == 10_999


def test_expired_windows_do_not_count() -> None:
    rate = Rate(2, SECOND_MS)
    rate.record(100, 0)
    assert rate.per_second(1_999) > 0
    assert rate.per_second(2_000) == 0.0
    assert rate.throttle_ms(1.0, 2_000) == 0


def test_rate_of_a_single_window_at_its_start_is_finite() -> None:
    rate = Rate(1, SECOND_MS)
    assert rate.per_second(0) == 0.0
    rate.record(10, 0)
    assert rate.per_second(0) == 10.0


def test_tokens_refill_with_time_up_to_the_burst() -> None:
    bucket = TokenBucket(11, SECOND_MS)
    assert bucket.tokens(2.0, 0) == 22.0
    bucket.take(30, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 4_000
    assert bucket.tokens(2.0, 1_000) == -6.0
    assert bucket.throttle_ms(2.0, 4_000) == 0
    assert bucket.tokens(2.0, 1_000_000) == 22.0


@pytest.mark.parametrize("limit", [5e-324, 1e-300, 1e-6])
def test_throttle_time_of_a_tiny_limit_fits_an_int32(limit: float) -> None:
    rate, bucket = Rate(11, SECOND_MS), TokenBucket(11, SECOND_MS)
    rate.record(10**9, 0)
    bucket.take(10**9, limit, 0)
    assert (rate.throttle_ms(limit, 0), bucket.throttle_ms(limit, 0)) == (THROTTLE_MS_MAX, THROTTLE_MS_MAX)


@pytest.mark.parametrize("limit", [1.7e308, math.inf])
def test_huge_limit_throttles_nothing(limit: float) -> None:
    rate, bucket = Rate(11, SECOND_MS), TokenBucket(11, SECOND_MS)
    for now_ms in (0, 0, 1_000):
        rate.record(10**9, now_ms)
        bucket.take(10**9, limit, now_ms)
        assert (rate.throttle_ms(limit, now_ms), bucket.throttle_ms(limit, now_ms)) == (0, 0)
