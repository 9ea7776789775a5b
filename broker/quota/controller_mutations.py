"""The quota `controller_mutation_rate`: partitions created and deleted per second (KIP-599)."""

from typing import Final, Protocol

from odradek.broker.quota.rates import TokenBucket
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.clock import Clock


class ControllerMutationQuota(Protocol):
    """Count the partitions that one request creates or deletes against the quota of its client."""

    @property
    def throttle_ms(self) -> int:
        """Milliseconds that the client is asked to stay silent for what was recorded so far."""

    def record(self, partitions: int) -> None:
        """Record `partitions` created or deleted partitions.

        Raise Refusal(THROTTLING_QUOTA_EXCEEDED) if the request may not create or delete them.
        """


class UnboundedControllerMutationQuota:
    """Record nothing: the client has no quota."""

    throttle_ms = 0

    def record(self, partitions: int) -> None:
        """Allow any number of partitions."""


UNBOUNDED: Final = UnboundedControllerMutationQuota()


class BoundedControllerMutationQuota:
    """Record mutations in the token bucket of a client that has a quota.

    A strict quota refuses a request while the bucket is in debt. A permissive quota, for clients that do not know
    THROTTLING_QUOTA_EXCEEDED, accepts each request and asks the client to stay silent afterwards.
    """

    def __init__(self, bucket: TokenBucket, limit: float, clock: Clock, *, strict: bool) -> None:
        """`limit` is partitions per second."""
        self._bucket = bucket
        self._limit = limit
        self._clock = clock
        self._strict = strict
        self.throttle_ms = 0

    def record(self, partitions: int) -> None:
        """Record `partitions`. One request may put the bucket in debt; the next strict request is refused until it is paid."""
        now_ms = self._clock.monotonic_ms()
        owed_ms = self._bucket.throttle_ms(self._limit, now_ms)
        if self._strict and owed_ms:
            self.throttle_ms = owed_ms
            raise Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self._bucket.take(partitions, self._limit, now_ms)
        if not self._strict:
            self.throttle_ms = self._bucket.throttle_ms(self._limit, now_ms)
