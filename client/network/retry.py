"""The retry policy of the client: which failures are retried, how long to wait between attempts, and until when."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from odradek.client.errors import ConnectionLost, Unreachable
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.client.errors import ClientError


class Recovery(Enum):
    """The step before the next attempt."""

    RESEND = "send the request to the same broker again"
    LOCATE = "find the leader or coordinator again, then send the request to it"


RECOVERIES: Final[Mapping[int, Recovery]] = {
    ErrorCode.CONCURRENT_TRANSACTIONS: Recovery.RESEND,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Recovery.RESEND,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Recovery.LOCATE,
    ErrorCode.FENCED_LEADER_EPOCH: Recovery.LOCATE,
    ErrorCode.KAFKA_STORAGE_ERROR: Recovery.LOCATE,
    ErrorCode.LEADER_NOT_AVAILABLE: Recovery.LOCATE,
    ErrorCode.NOT_COORDINATOR: Recovery.LOCATE,
    ErrorCode.NOT_ENOUGH_REPLICAS: Recovery.RESEND,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Recovery.RESEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Recovery.LOCATE,
    ErrorCode.OFFSET_NOT_AVAILABLE: Recovery.RESEND,
    ErrorCode.REPLICA_NOT_AVAILABLE: Recovery.LOCATE,
    ErrorCode.REQUEST_TIMED_OUT: Recovery.RESEND,
    ErrorCode.UNKNOWN_LEADER_EPOCH: Recovery.LOCATE,
    ErrorCode.UNKNOWN_TOPIC_ID: Recovery.LOCATE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Recovery.LOCATE,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: Recovery.RESEND,
}
"""Error codes that are retried.

All others are permanent. A leader may not know a new topic yet, so an unknown topic is retried too.
"""


def recovery_of(failure: int | ClientError) -> Recovery | None:
    """Return the step before the next attempt, or None if the error code or exception is permanent."""
    if isinstance(failure, int):
        return RECOVERIES.get(failure)
    return Recovery.LOCATE if isinstance(failure, Unreachable | ConnectionLost) else None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Time limits of retries. The default values are those of Kafka's clients (retry.backoff.ms, retry.backoff.max.ms).

    Attributes:
        deadline_s: Seconds from the first attempt after which no further attempt starts. 0 allows one attempt.
        backoff_s: Seconds before the second attempt. The delay doubles with each attempt.
        backoff_max_s: Maximum seconds between two attempts.
        jitter: Fraction by which a delay is randomly shortened or lengthened, so that clients do not retry in step.
    """

    deadline_s: float = 30.0
    backoff_s: float = 0.1
    backoff_max_s: float = 1.0
    jitter: float = 0.2

    def delay_s(self, attempt: int) -> float:
        """Return the seconds to wait after the given number of failed attempts."""
        delay = min(self.backoff_s * 2.0 ** (attempt - 1), self.backoff_max_s)
        return delay * (1 + self.jitter * random.uniform(-1, 1))


class Attempts:
    """The attempts of one operation. The deadline starts with the first failure."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failed = 0
        self._deadline = 0.0

    async def prepare(self, failure: int | ClientError) -> Recovery | None:
        """Wait before the next attempt and return the step before it.

        Return None if there must be no further attempt.
        """
        recovery = recovery_of(failure)
        if recovery is None:
            return None
        now = asyncio.get_running_loop().time()
        if self._failed == 0:
            self._deadline = now + self._policy.deadline_s
        self._failed += 1
        delay = self._policy.delay_s(self._failed)
        if now + delay > self._deadline:
            return None
        await asyncio.sleep(delay)
        return recovery

    def reset(self) -> None:
        """Start a new deadline with the next failure, because an attempt succeeded."""
        self._failed = 0
