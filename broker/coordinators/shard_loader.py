"""The partitions of a coordinator's topic that this broker leads become shards of that coordinator.

Those that it follows are read along, so that an election finds little to load.
"""

from collections.abc import Coroutine
from typing import Any, Final, Protocol

from odradek.broker.coordinators.log_replay import Turns
from odradek.broker.coordinators.partition_log import PartitionLogPort
from odradek.broker.coordinators.standby_cache import LatestRecords
from odradek.broker.partition.partition import Partition
from odradek.broker.partition.registry import Partitions
from odradek.protocol.batch import NO_SEQUENCE
from odradek.runtime.clock import Clock
from odradek.runtime.log_port import ShardLog
from odradek.runtime.tasks import Spawn

LOADS_AT_A_TIME: Final = 2
"""Logs that are read beside each other; each one's slice is some 2 ms of the loop."""
FOLLOW_INTERVAL_MS: Final = 500
"""How often what has been replicated is taken in: what an election is left with."""


class Coordinator(Protocol):
    """Whose state lies in the topic (see `odradek.runtime.shards.LedShards`)."""

    def on_leadership(self, shard: int, leader_epoch: int, log: ShardLog) -> Coroutine[Any, Any, None]: ...

    def on_resignation(self, shard: int, leader_epoch: int | None = None) -> None: ...


class CoordinatorShards:
    """Listens to the elections of one topic (see `odradek.broker.partition.registry.LeadershipListener`)."""

    def __init__(
        self,
        topic: str,
        coordinator: Coordinator,
        partitions: Partitions,
        spawn: Spawn,
        clock: Clock,
        *,
        load_bytes: int,
        base_sequence: int = NO_SEQUENCE,
    ) -> None:
        """`load_bytes` is what is read at a time (`transaction.state.log.load.buffer.size`, `offsets.load.buffer.size`);
        `base_sequence` is what Kafka's coordinator of this topic writes into its batches.
        """
        self._topic = topic
        self._coordinator = coordinator
        self._partitions = partitions
        self._spawn = spawn
        self._clock = clock
        self._load_bytes = load_bytes
        self._base_sequence = base_sequence
        self._turns = Turns(LOADS_AT_A_TIME)
        self._latest: dict[Partition, LatestRecords] = {}

    def elected(self, partition: Partition) -> None:
        # It is not read on while this broker leads, and compaction goes on: it is not for another election.
        latest = self._latest.pop(partition, None)
        log = PartitionLogPort(
            partition,
            read_bytes=self._load_bytes,
            turns=self._turns,
            latest=latest,
            base_sequence=self._base_sequence,
        )
        loading = self._coordinator.on_leadership(partition.index, partition.leader_epoch, log)
        self._spawn(loading, f"load {partition.topic}-{partition.index}")

    def resigned(self, partition: Partition) -> None:
        # None, where the partition is not just led elsewhere: its replica is gone, whatever the epoch.
        self._coordinator.on_resignation(partition.index, partition.leader_epoch if partition.online else None)

    async def follow(self) -> None:
        """Read on in every partition that this broker follows."""
        known = self._latest
        self._latest = {
            partition: known[partition] if partition in known else LatestRecords(partition, self._clock)
            for partition in self._partitions.hosted(self._topic)
            if partition.follows
        }
        for partition, latest in list(self._latest.items()):  # elections come in between
            if partition.follows:
                await latest.read_on(read_bytes=self._load_bytes)
