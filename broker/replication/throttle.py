"""Limit the bytes per second of replicas that are listed as throttled and are not in the ISR (KIP-73).

The rates are leader.replication.throttled.rate and follower.replication.throttled.rate, which can change while the
broker runs. The topic properties leader.replication.throttled.replicas and follower.replication.throttled.replicas list
the replicas: `*`, or one `partition:broker` for each. A listed replica in the ISR is never delayed, but its bytes count
for the rate.
"""

from collections.abc import Callable
from typing import Final

from odradek.broker.partition.partition import Partition
from odradek.protocol.primitives import INT64_MAX
from odradek.runtime.clock import Clock

ALL: Final = "*"
"""Entry of a list of throttled replicas that stands for all replicas of the topic."""
PAUSE_MS_MAX: Final = 1_000
"""Maximum wait of a throttled replica before the rate is evaluated again, in milliseconds: the rate may be raised
meanwhile."""
DEBT_MS_MAX: Final = 11_000
"""Maximum debt of a throttle: the bytes of this many milliseconds at its rate. Replicas in the ISR can exceed the
rate for any time; Kafka forgets that after its window of 11 samples of 1 s (replication.quota.window.num)."""


class Throttle:
    """Token bucket of one rate: bytes beyond the rate are a debt, which decreases at the rate."""

    def __init__(self, rate: Callable[[], int], clock: Clock) -> None:
        """`rate()` returns bytes per second; INT64_MAX means no limit."""
        self._rate = rate
        self._clock = clock
        self._debt = 0.0
        self._updated_ms = 0

    def record(self, size: int) -> None:
        """Count `size` replicated bytes."""
        self._decay()
        self._debt += size

    def wait_ms(self) -> int:
        """Return the milliseconds until the debt is paid, at most PAUSE_MS_MAX; 0 if there is no debt."""
        rate = self._decay()
        if rate == INT64_MAX or (rate and not self._debt):
            return 0
        return min(int(self._debt * 1_000 / rate) + 1, PAUSE_MS_MAX) if rate else PAUSE_MS_MAX

    def _decay(self) -> int:
        """Reduce the debt by the time since the last update. Return the present rate."""
        rate, now_ms = self._rate(), self._clock.monotonic_ms()
        debt = min(self._debt, rate * DEBT_MS_MAX / 1_000)
        self._debt = max(0.0, debt - rate * (now_ms - self._updated_ms) / 1_000)
        self._updated_ms = now_ms
        return rate


def is_listed(replicas: frozenset[str], index: int, broker_id: int) -> bool:
    """Return True if the list `replicas` of a topic contains the replica of partition `index` on `broker_id`."""
    return ALL in replicas or f"{index}:{broker_id}" in replicas


class ReplicaThrottles:
    """The throttles of one broker: as a leader and as a follower."""

    def __init__(
        self, broker_id: int, leader: Throttle, follower: Throttle, in_sync: Callable[[Partition], bool]
    ) -> None:
        """`in_sync` returns True if this broker is in the ISR of the partition, according to the metadata image."""
        self._broker_id = broker_id
        self._leader = leader
        self._follower = follower
        self._in_sync = in_sync

    def leader_wait_ms(self, partition: Partition, *, follower_in_sync: bool) -> int:
        """Return the milliseconds for which a follower gets no records of `partition`."""
        listed = partition.log.config.leader_replication_throttled_replicas
        if not listed or follower_in_sync or not is_listed(listed, partition.index, self._broker_id):
            return 0
        return self._leader.wait_ms()

    def record_leader_bytes(self, partition: Partition, size: int) -> None:
        """Count `size` bytes that this broker sends to a follower as the leader of `partition`."""
        listed = partition.log.config.leader_replication_throttled_replicas
        if listed and is_listed(listed, partition.index, self._broker_id):
            self._leader.record(size)

    def record_follower_bytes(self, partition: Partition, size: int) -> None:
        """Count `size` bytes that this broker appended as a follower of `partition`."""
        listed = partition.log.config.follower_replication_throttled_replicas
        if listed and is_listed(listed, partition.index, self._broker_id):
            self._follower.record(size)

    def follower_wait_ms(self, partition: Partition) -> int:
        """Return the milliseconds for which this broker does not fetch `partition`."""
        listed = partition.log.config.follower_replication_throttled_replicas
        if not listed or not is_listed(listed, partition.index, self._broker_id) or self._in_sync(partition):
            return 0
        return self._follower.wait_ms()
