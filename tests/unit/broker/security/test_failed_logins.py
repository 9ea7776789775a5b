"""The rate of failed logins per address."""

from odradek.broker.security.failed_logins import (
    ADDRESSES_MAX,
    FAILURES_MAX,
    FAILURES_PER_SECOND,
    WAIT_SECONDS_MAX,
    FailedLogins,
)


def fail(failures: FailedLogins, address: str, count: int, now_s: float = 0.0) -> None:
    for _ in range(count):
        failures.failed(address, now_s, waited=False)


def test_logins_wait_after_many_failures_of_their_address_alone() -> None:
    failures = FailedLogins()
    fail(failures, "a", FAILURES_MAX - 1)
    assert failures.wait_s("a", 0.0) == 0
    fail(failures, "a", 1)
    assert failures.wait_s("a", 0.0) == 1 / FAILURES_PER_SECOND
    assert failures.wait_s("b", 0.0) == 0


def test_failures_are_forgotten_with_time() -> None:
    failures = FailedLogins()
    fail(failures, "a", FAILURES_MAX)
    assert failures.wait_s("a", 1 / FAILURES_PER_SECOND) == 0


def test_parallel_logins_wait_for_each_other_and_the_last_ones_are_refused() -> None:
    """The rate holds if an address sends all its logins in parallel: the queue of those that wait is bounded."""
    failures = FailedLogins()
    fail(failures, "a", FAILURES_MAX)
    waits = [failures.wait_s("a", 0.0) for _ in range(1_000)]
    admitted = [wait_s for wait_s in waits if wait_s is not None]
    assert admitted == [number / FAILURES_PER_SECOND for number in range(1, len(admitted) + 1)]
    assert len(admitted) == WAIT_SECONDS_MAX * FAILURES_PER_SECOND
    assert waits[len(admitted) :] == [None] * (1_000 - len(admitted))


def test_success_takes_back_the_reserved_failure() -> None:
    failures = FailedLogins()
    fail(failures, "a", FAILURES_MAX)
    first = failures.wait_s("a", 0.0)
    failures.succeeded("a", 0.0, waited=True)
    assert failures.wait_s("a", 0.0) == first
    failures.failed("a", 0.0, waited=True)
    assert failures.wait_s("a", 0.0) == 2 / FAILURES_PER_SECOND


def test_number_of_addresses_is_bounded() -> None:
    failures = FailedLogins()
    fail(failures, "first", FAILURES_MAX)
    for number in range(ADDRESSES_MAX):
        fail(failures, str(number), 1)
    assert failures.wait_s("first", 0.0) == 0
