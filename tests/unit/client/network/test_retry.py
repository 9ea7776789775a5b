"""The retry policy: which failures are retried, the delays, and the deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from odradek.client import ConnectionLost, NotFound, ProtocolError, RequestTimedOut, RetryPolicy, Unreachable
from odradek.client.network.retry import RECOVERIES, Attempts, Recovery, recovery_of
from odradek.protocol.errors import ERRORS, ErrorCode

if TYPE_CHECKING:
    from tests.support.fake_kafka import FakeKafka


def delays(kafka: FakeKafka, policy: RetryPolicy, failures: int) -> list[float | None]:
    """Return the virtual seconds that each failed attempt waits, None if there is no further attempt."""

    async def test() -> list[float | None]:
        attempts = Attempts(policy)
        waits: list[float | None] = []
        for _ in range(failures):
            began = kafka.loop.time()
            recovery = await attempts.prepare(ErrorCode.NOT_COORDINATOR)
            waits.append(None if recovery is None else round(kafka.loop.time() - began, 3))
        return waits

    return kafka.loop.run_until_complete(test())


def test_delays_double_up_to_their_maximum_until_the_deadline(kafka: FakeKafka) -> None:
    policy = RetryPolicy(deadline_s=4.0, backoff_s=0.1, backoff_max_s=1.0, jitter=0)
    assert delays(kafka, policy, 8) == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, None, None]


def test_jitter_stays_within_its_fraction(kafka: FakeKafka) -> None:
    waits = [RetryPolicy(backoff_s=1.0, jitter=0.2).delay_s(1) for _ in range(200)]
    assert 0.8 <= min(waits) < max(waits) <= 1.2


def test_a_deadline_of_zero_allows_one_attempt(kafka: FakeKafka) -> None:
    assert delays(kafka, RetryPolicy(deadline_s=0), 1) == [None]


def test_a_success_starts_a_new_deadline(kafka: FakeKafka) -> None:
    async def test() -> None:
        attempts = Attempts(RetryPolicy(deadline_s=0.15, jitter=0))
        for _ in range(3):
            assert await attempts.prepare(ErrorCode.LEADER_NOT_AVAILABLE) is Recovery.LOCATE
            assert await attempts.prepare(ErrorCode.LEADER_NOT_AVAILABLE) is None
            attempts.reset()
            await asyncio.sleep(60)

    kafka.loop.run_until_complete(test())


@pytest.mark.parametrize(
    ("failure", "recovery"),
    [
        (ErrorCode.NONE, None),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None),
        (ErrorCode.PRODUCER_FENCED, None),
        (12_345, None),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Recovery.RESEND),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Recovery.LOCATE),
        (Unreachable(""), Recovery.LOCATE),
        (ConnectionLost(""), Recovery.LOCATE),
        (RequestTimedOut(""), Recovery.LOCATE),
        (ProtocolError(""), None),
        (NotFound("", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None),
    ],
)
def test_failures_are_retriable_or_permanent(failure: int, recovery: Recovery | None) -> None:
    assert recovery_of(failure) is recovery


def test_only_errors_that_kafka_calls_retriable_are_retried() -> None:
    assert [code for code in RECOVERIES if not ERRORS[ErrorCode(code)].retriable] == []
