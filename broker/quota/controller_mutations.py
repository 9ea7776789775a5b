"""Quota `controller_mutation_rate`: created and deleted partitions per second (KIP-599)."""

from typing import Final, Protocol

from odradek.broker.quota.rates import TokenBucket
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.clock import Clock


class ControllerMutationQuota(Protocol):
    """Quota that applies to the partitions that one request creates or deletes."""

    @property
    def throttle_ms(self) -> int:
        """Throttle time in milliseconds for the partitions that were recorded so far."""

    def record(self, partitions: int) -> None:
        """Record that the request creates or deletes `partitions` partitions.

        Raise Refusal(THROTTLING_QUOTA_EXCEEDED) if the quota is strict and the client has exceeded it before.
        """


class UnboundedControllerMutationQuota:
    """Quota of a client without a limit. It records nothing."""

    throttle_ms = 0

    def record(self, partitions: int) -> None:
        """Do nothing: any number of partitions is allowed."""


UNBOUNDED: Final = UnboundedControllerMutationQuota()


class BoundedControllerMutationQuota:
    """Quota of a client with a limit. It records partitions in the client's token bucket.

    A strict quota refuses requests while the bucket is in debt. A permissive quota is for clients that do not know
    THROTTLING_QUOTA_EXCEEDED: it accepts each request and throttles the client afterwards.
    """

    def __init__(self, bucket: TokenBucket, limit: float, clock: Clock, *, strict: bool) -> None:
        """Create the quota of one request. `limit` is in partitions per second."""
        self._bucket = bucket
        self._limit = limit
        self._clock = clock
        self._strict = strict
        self.throttle_ms = 0

    def record(self, partitions: int) -> None:
        """Take `partitions` tokens.

        One request may take more tokens than there are. Strict requests are refused until the tokens are above 0 again.
        """
        now_ms = self._clock.monotonic_ms()
        debt_ms = self._bucket.throttle_ms(self._limit, now_ms)
        if self._strict and debt_ms:
            self.throttle_ms = debt_ms
            raise Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self._bucket.take(partitions, self._limit, now_ms)
        if not self._strict:
            self.throttle_ms = self._bucket.throttle_ms(self._limit, now_ms)
