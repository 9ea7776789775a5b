"""All partitions of this broker: hosted as the metadata log says, found by name or by topic id.

A change of the metadata may concern thousands of partitions: what goes beyond `WORK_AT_ONCE` is done in slices between which
the loop serves others. A partition that somebody asks for meanwhile comes first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, Protocol
from uuid import UUID

from odradek.broker.partition.leader_term import LeaderAndIsr, LeaderContext, LeaderTerm
from odradek.broker.partition.partition import Cluster, Partition, PartitionContext, log_offline
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage, PartitionImage, TopicImage
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.clock import Clock
from odradek.runtime.tasks import Spawn
from odradek.storage.config import LogConfig
from odradek.storage.data_directory.log_manager import LogManager, StaleCheckpoint

ConfigOf = Callable[[Mapping[str, str]], LogConfig]
"""The log configuration of a topic out of the properties that were set for it."""
WORK_AT_ONCE: Final = 128
"""Changes of a role that are made before the loop has its turn: about 5 ms."""
HOSTING_WORK: Final = 8
"""What opening a log counts, in changes of a role."""


class LeadershipListener(Protocol):
    """Who needs to know which partitions of one topic this broker leads (the coordinators)."""

    def elected(self, partition: Partition) -> None:
        """A new leader epoch has begun here."""

    def resigned(self, partition: Partition) -> None:
        """It has ended. Maybe from inside an append of the listener's own."""


class Replication(Cluster, Protocol):
    """Who fetches for the partitions that are followed, and is fetched from for those that are led."""

    def led(self, partition: Partition) -> None:
        """A leader epoch has begun here: followers may be waiting for it."""

    def follow(self, partition: Partition, leader: int) -> None:
        """Fetch from `leader` (-1: nobody) in the epoch of `partition`; the same again changes nothing."""

    def stop_following(self, partition: Partition) -> None:
        """Fetch it no more. On return nothing is appended to its log or cut from it any more."""


class Partitions:
    """The registry. `on_metadata` is its only source of what is hosted and led."""

    def __init__(
        self,
        *,
        node_id: int,
        logs: LogManager,
        clock: Clock,
        spawn: Spawn,
        config_of: ConfigOf,
        replication: Replication,
        leader_term: type[LeaderTerm] = LeaderTerm,
    ) -> None:
        """`leader_term` is the class of leader terms; tests pass one that delays commits."""
        self._node_id = node_id
        self._logs = logs
        self._clock = clock
        self._spawn = spawn
        self._config_of = config_of
        self._replication = replication
        leader = LeaderContext(node_id, clock, spawn, replication.lag_max_ms, replication.broker_epoch_of)
        self._context = PartitionContext(replication, leader, leader_term, self._resigned)
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[UUID, dict[int, Partition]] = {}
        self._unopened: dict[tuple[UUID, int], None] = {}
        self._due: dict[tuple[UUID, int], None] = {}
        """Partitions whose newest state in the metadata has not been followed yet."""
        self._put_off: dict[tuple[UUID, int], None] = {}
        """Partitions to be hosted under a name that the checkpoints of the logs have to forget first."""
        self._working = False
        self._elected: list[Callable[[Partition], None]] = []
        self._listeners: dict[str, LeadershipListener] = {}
        self._image: MetadataImage | None = None

    # ---- finding ----------------------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition | None:
        hosted = self._by_name.get(topic)
        return None if hosted is None else hosted.get(index)

    def get_by_id(self, topic_id: UUID, index: int) -> Partition | None:
        hosted = self._by_id.get(topic_id)
        return None if hosted is None else hosted.get(index)

    def find(self, topic: str, index: int) -> Partition:
        """As `get`, and for a partition that is not hosted the Refusal that Kafka gives."""
        hosted = self._by_name.get(topic)
        if hosted is not None and index in hosted:
            return hosted[index]
        return self._hurry(None if self._image is None else self._image.topic(topic), index)

    def find_by_id(self, topic_id: UUID, index: int) -> Partition:
        """As `find`; UNKNOWN_TOPIC_ID for a topic that is not known at all."""
        hosted = self._by_id.get(topic_id)
        if hosted is not None and index in hosted:
            return hosted[index]
        topic = None if self._image is None else self._image.topic_by_id(topic_id)
        if topic is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
        return self._hurry(topic, index)

    def __iter__(self) -> Iterator[Partition]:
        """Every hosted partition, in order of hosting; safe against changes while iterating."""
        return iter([partition for hosted in self._by_name.values() for partition in hosted.values()])

    def hosted(self, topic: str) -> list[Partition]:
        """The partitions of `topic` that this broker is a replica of, by index."""
        hosted = self._by_name.get(topic, {})
        return [hosted[index] for index in sorted(hosted)]

    def led(self, topic: str) -> list[Partition]:
        """The partitions of `topic` that this broker leads, by index."""
        hosted = self._by_name.get(topic, {})
        return [hosted[index] for index in sorted(hosted) if hosted[index].leads]

    async def keep_log_starts(self) -> None:
        """Returns when the log starts of now are on stable storage. Raises OSError."""
        await self._logs.checkpoint_log_starts()

    def _hurry(self, topic: TopicImage | None, index: int) -> Partition:
        """Somebody asks for a partition that is not hosted: maybe its turn has not come yet."""
        if topic is not None and (topic.topic_id, index) in self._due:
            self._follow_metadata(topic.topic_id, index)
            partition = self.get_by_id(topic.topic_id, index)
            if partition is not None:
                return partition
        raise self._absent(topic, index)

    def _absent(self, topic: TopicImage | None, index: int) -> Refusal:
        if topic is None or index not in topic.partitions:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if (topic.topic_id, index) in self._unopened:
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR)
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # ---- following the metadata -------------------------------------------------------------------------------------

    def listen(self, topic: str, listener: LeadershipListener) -> None:
        """Tell `listener` of every election and resignation of a partition of `topic` from now on."""
        assert topic not in self._listeners
        self._listeners[topic] = listener

    def on_elected(self, callback: Callable[[Partition], None]) -> None:
        """Call `callback(partition)` whenever a leader epoch begins on this broker."""
        self._elected.append(callback)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow what has been committed to the metadata log. Called in commit order."""
        self._image = image
        for deleted in delta.deleted_topics():
            self._delete(deleted)
        # Settings first: a leader must not judge a smaller ISR by a `min.insync.replicas` that was raised before it shrank.
        for kind, name in delta.changed_configs():
            if kind == RESOURCE_TOPIC:
                self._configure(name, image)
            elif kind == RESOURCE_BROKER:
                for topic_name in list(self._by_name):
                    self._configure(topic_name, image)
        for key in delta.changed_partitions():
            self._due[key] = None
        self._work()
        if delta.changed_brokers():
            self._register_brokers()

    def close(self) -> None:
        """The node stops: whoever waits is told that this broker leads nothing any more."""
        for partition in self:
            partition.follow(partition.leader_epoch)

    def _work(self) -> None:
        """One slice of what is due, and the rest in a task."""
        left = WORK_AT_ONCE
        while self._due and left > 0:
            left -= self._follow_metadata(*next(iter(self._due)))
        if self._due and not self._working:
            self._working = True
            self._spawn(self._work_on(), "follow the metadata")

    async def _work_on(self) -> None:
        try:
            while self._due:
                await asyncio.sleep(0)
                self._work()
        finally:
            self._working = False

    def _follow_metadata(self, topic_id: UUID, index: int) -> int:
        """Make of the partition what the metadata says; how much work that was."""
        self._due.pop((topic_id, index), None)
        assert self._image is not None
        topic = self._image.topic_by_id(topic_id)
        if topic is None:
            return 0
        image = topic.partitions[index]
        partition = self.get_by_id(topic_id, index)
        if self._node_id not in image.replicas:
            if partition is None:
                return 0
            self._drop(partition, image.leader_epoch)
            return HOSTING_WORK
        if partition is not None:
            self._change(partition, image)
            return 1
        partition = self._host(topic, index)
        if partition is not None:
            self._change(partition, image)
        return HOSTING_WORK

    def _change(self, partition: Partition, image: PartitionImage) -> None:
        if image.leader != self._node_id:
            partition.follow(image.leader_epoch)
            if partition.online:
                self._replication.follow(partition, image.leader)
            return
        self._replication.stop_following(partition)
        # One that was elected uncleanly has recovered by leading: its next change of the ISR says so (KIP-704).
        if partition.lead(LeaderAndIsr(image.leader_epoch, image.partition_epoch, image.replicas, image.isr)):
            self._replication.led(partition)
            for callback in self._elected:
                callback(partition)
            listener = self._listeners.get(partition.topic)
            if listener is not None:
                listener.elected(partition)

    def _register_brokers(self) -> None:
        """Brokers have come, gone, or changed what they may be: leaders ask for them anew."""
        for partition in self:
            term = partition.leader_term
            if term is not None and not term.replicas.alone:
                term.register()
                term.update_high_watermark()

    def _drop(self, partition: Partition, leader_epoch: int) -> None:
        """This broker is no replica any more."""
        partition.follow(leader_epoch)
        hosted = self._by_id[partition.topic_id]
        del hosted[partition.index]
        self._remove(partition)

    def _remove(self, partition: Partition) -> None:
        self._replication.stop_following(partition)
        partition.delete()
        topic, index = partition.topic, partition.index
        self._spawn(_deleted(topic, index, self._logs.delete(topic, index)), f"delete {topic}-{index}")

    def _host(self, topic: TopicImage, index: int) -> Partition | None:
        assert self._image is not None
        config = self._config_of(self._image.topic_config(topic.name))
        try:
            log = self._logs.create(topic.name, index, topic.topic_id, config, self._clock.wall_ms())
        except StaleCheckpoint:
            if not self._put_off:
                self._spawn(self._host_later(), "forget logs that are gone")
            self._put_off[topic.topic_id, index] = None
            return None
        except OSError as error:
            self._cannot_host(topic, index, error)
            return None
        partition = Partition(log, self._context)
        hosted = self._by_id.setdefault(topic.topic_id, {})
        hosted[index] = partition
        self._by_name[topic.name] = hosted
        return partition

    def _cannot_host(self, topic: TopicImage, index: int, error: OSError) -> None:
        log_offline(topic.name, index, error)
        self._unopened[topic.topic_id, index] = None
        self._replication.went_offline(topic.name, index, error)

    async def _host_later(self) -> None:
        failure: OSError | None = None
        try:
            await self._logs.remove_stale_entries()
        except OSError as error:
            failure = error
        put_off, self._put_off = self._put_off, {}
        if failure is None:
            self._due |= put_off
            self._work()
            return
        assert self._image is not None
        for topic_id, index in put_off:
            topic = self._image.topic_by_id(topic_id)
            if topic is not None and self.get_by_id(topic_id, index) is None:
                self._cannot_host(topic, index, failure)

    def _delete(self, topic: TopicImage) -> None:
        hosted = self._by_id.pop(topic.topic_id, {})
        if self._by_name.get(topic.name) is hosted:
            del self._by_name[topic.name]
        for partition in hosted.values():
            self._remove(partition)
        for key in [key for key in self._due if key[0] == topic.topic_id]:
            del self._due[key]
        for key in [key for key in self._unopened if key[0] == topic.topic_id]:
            del self._unopened[key]

    def _configure(self, topic: str, image: MetadataImage) -> None:
        hosted = self._by_name.get(topic)
        if hosted:
            config = self._config_of(image.topic_config(topic))
            for partition in hosted.values():
                partition.configure(config)

    def _resigned(self, partition: Partition) -> None:
        listener = self._listeners.get(partition.topic)
        if listener is not None:
            listener.resigned(partition)


async def _deleted(topic: str, index: int, deletion: Awaitable[None]) -> None:
    """Files that the disk does not let go of are left behind; the partition is gone all the same."""
    try:
        await deletion
    except OSError as error:
        log_offline(topic, index, error)
