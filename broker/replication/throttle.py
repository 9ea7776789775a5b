"""Limits on what replication may take while replicas are moved (KIP-73): bytes a second, for replicas that are named and not in sync.

A throttled replica that is in sync takes what it needs, and that counts. The rates are `leader.` and
`follower.replication.throttled.rate`, which change while the broker runs; the replicas are named by the topic's properties
`leader.` and `follower.replication.throttled.replicas`: `*`, or `partition:broker` for each one.
"""

from collections.abc import Callable
from typing import Final

from odradek.broker.config.property import LONG_MAX
from odradek.broker.partition.partition import Partition
from odradek.runtime.clock import Clock

ALL: Final = "*"
PAUSE_MS_MAX: Final = 1_000
"""A rate may have been raised meanwhile: nobody waits longer without looking again."""
DEBT_MS_MAX: Final = 11_000
"""Of the rate. Replicas in sync take more than the rate for as long as they must: what they took before that counts no more, as in
Kafka, which measures over eleven samples of a second (replication.quota.window.num)."""


class Throttle:
    """One rate. What was taken beyond it is paid off as time passes."""

    def __init__(self, rate: Callable[[], int], clock: Clock) -> None:
        """`rate()` is bytes a second, LONG_MAX for no limit."""
        self._rate = rate
        self._clock = clock
        self._owed = 0.0
        self._paid_ms = 0

    def took(self, size: int) -> None:
        self._pay()
        self._owed += size

    def wait_ms(self) -> int:
        """How long to wait before more is taken; 0 for not at all."""
        rate = self._pay()
        if rate == LONG_MAX or (rate and not self._owed):
            return 0
        return min(int(self._owed * 1_000 / rate) + 1, PAUSE_MS_MAX) if rate else PAUSE_MS_MAX

    def _pay(self) -> int:
        rate, now_ms = self._rate(), self._clock.monotonic_ms()
        owed = min(self._owed, rate * DEBT_MS_MAX / 1_000)
        self._owed = max(0.0, owed - rate * (now_ms - self._paid_ms) / 1_000)
        self._paid_ms = now_ms
        return rate


def is_named(replicas: tuple[str, ...], index: int, broker_id: int) -> bool:
    return ALL in replicas or f"{index}:{broker_id}" in replicas


class ReplicaThrottles:
    """Both sides of one broker. `in_sync(partition)`: is this broker's own replica, as far as the metadata says?"""

    def __init__(
        self, broker_id: int, leader: Throttle, follower: Throttle, in_sync: Callable[[Partition], bool]
    ) -> None:
        self._broker_id = broker_id
        self._leader = leader
        self._follower = follower
        self._in_sync = in_sync

    def leader_wait_ms(self, partition: Partition, *, follower_in_sync: bool) -> int:
        """How long a follower must not have more of the partition."""
        named = partition.log.config.leader_replication_throttled_replicas
        if not named or follower_in_sync or not is_named(named, partition.index, self._broker_id):
            return 0
        return self._leader.wait_ms()

    def leader_gave(self, partition: Partition, size: int) -> None:
        named = partition.log.config.leader_replication_throttled_replicas
        if named and is_named(named, partition.index, self._broker_id):
            self._leader.took(size)

    def follower_took(self, partition: Partition, size: int) -> None:
        named = partition.log.config.follower_replication_throttled_replicas
        if named and is_named(named, partition.index, self._broker_id):
            self._follower.took(size)

    def follower_wait_ms(self, partition: Partition) -> int:
        """How long this broker must not ask for more of the partition."""
        named = partition.log.config.follower_replication_throttled_replicas
        if not named or not is_named(named, partition.index, self._broker_id) or self._in_sync(partition):
            return 0
        return self._follower.wait_ms()
