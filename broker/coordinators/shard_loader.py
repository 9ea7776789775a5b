"""Load a shard of a coordinator for each partition of its topic that this broker leads.

For the partitions that this broker follows, a standby cache keeps the newest records. So a shard is loaded quickly
after an election.
"""

from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

from odradek.broker.coordinators.image_ports import CoordinatorTopic
from odradek.broker.coordinators.partition_log import PartitionLogPort
from odradek.broker.coordinators.standby_cache import StandbyCache
from odradek.broker.partition.partition import Partition
from odradek.broker.partition.registry import Partitions
from odradek.broker.quota.shortest_first import ShortestFirst
from odradek.protocol.batch import NO_SEQUENCE
from odradek.protocol.errors import Refusal
from odradek.runtime.clock import Clock
from odradek.runtime.log_port import ShardLog
from odradek.runtime.repeated_tasks import report
from odradek.runtime.tasks import Spawn

CONCURRENT_LOADS_MAX: Final = 2
"""Maximum shards of one coordinator that are loaded concurrently. Each occupies the event loop for about 2 ms at a
time."""
STANDBY_INTERVAL_MS: Final = 500
"""Interval in which the standby caches read replicated records, in milliseconds. After an election, the records of
at most one interval remain to be read."""


class Coordinator(Protocol):
    """The coordinator whose state is in the topic (`odradek.runtime.shards.LedShards`)."""

    def on_leadership(self, shard: int, leader_epoch: int, log: ShardLog) -> Coroutine[Any, Any, None]:
        """Return the coroutine that loads the shard from `log`."""

    def on_resignation(self, shard: int, leader_epoch: int | None = None) -> None:
        """Unload the shard of `leader_epoch`, or of any epoch if it is None."""


def leads_open(partitions: Partitions, topic: CoordinatorTopic, node_id: int, shard: int) -> bool:
    """Return True if broker `node_id` leads the shard. If its log is new and not open yet, open it first.

    The first request of a client follows the creation of the topic within milliseconds, and the logs of its partitions
    are opened in slices. An open log has a shard, for which requests wait. Without one, the client would receive
    COORDINATOR_LOAD_IN_PROGRESS, and librdkafka tries again after half a second.
    """
    if not topic.leads(node_id, shard):
        return False
    if partitions.awaits_log(topic.name, shard):
        with suppress(Refusal):  # the log cannot be opened now
            partitions.find(topic.name, shard)
    return True


class CoordinatorShards:
    """The shards of one coordinator on this broker. It receives the elections of the coordinator's topic."""

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
        """Create the shards of `topic`; the caller passes this object to `Partitions.listen`.

        `load_bytes` is the size of one read (transaction.state.log.load.buffer.size or offsets.load.buffer.size).
        `base_sequence` is the sequence number that Kafka's coordinator of this topic writes into its batches.
        """
        self._topic = topic
        self._coordinator = coordinator
        self._partitions = partitions
        self._spawn = spawn
        self._clock = clock
        self._load_bytes = load_bytes
        self._base_sequence = base_sequence
        self._load_queue = ShortestFirst(CONCURRENT_LOADS_MAX)
        self._standby: dict[Partition, StandbyCache] = {}

    def elected(self, partition: Partition) -> None:
        """Load the shard of `partition`."""
        # The cache is not updated while this broker leads, so it is of no use for a later election.
        standby = self._standby.pop(partition, None)
        log = PartitionLogPort(
            partition,
            read_bytes=self._load_bytes,
            load_queue=self._load_queue,
            standby=standby,
            base_sequence=self._base_sequence,
        )
        loading = self._coordinator.on_leadership(partition.index, partition.leader_epoch, log)
        self._spawn(loading, f"load {partition.topic}-{partition.index}")

    def resigned(self, partition: Partition) -> None:
        """Unload the shard of `partition`."""
        # If the replica is offline or deleted, the shard is unloaded whatever its leader epoch.
        self._coordinator.on_resignation(partition.index, partition.leader_epoch if partition.online else None)

    async def update_standby(self) -> None:
        """Read the newly replicated records of all partitions of the topic that this broker follows."""
        known = self._standby
        self._standby = {
            partition: known[partition] if partition in known else StandbyCache(partition, self._clock)
            for partition in self._partitions.hosted(self._topic)
            if partition.follows
        }
        for partition, standby in list(self._standby.items()):  # An election during an await removes entries.
            if partition.follows:
                try:
                    await standby.catch_up(read_bytes=self._load_bytes)
                except Exception as error:  # noqa: BLE001  it is reported
                    report(error, self._spawn, f"update standby cache of {partition.topic}-{partition.index}")
