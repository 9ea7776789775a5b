"""The partitions that this broker hosts, by name and by topic id, in the roles that the metadata log gives them.

One change of the metadata may concern thousands of partitions. It is applied in slices of ROLE_CHANGES_PER_SLICE or
SLICE_US_MAX, and other tasks run between them. Partitions of coordinators come first, then role changes of hosted
partitions. A request for a new partition creates its log on this broker.

Slices that create or delete logs have rests between them, unless one of the urgent partitions waits (decision 0107).
The rests are longer while a client creates many partitions, because the delivery of their records needs time, too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from odradek.broker.partition.changed_partitions import ChangedPartitions, Priority
from odradek.broker.partition.leader_term import LeaderAndIsr, LeaderContext, LeaderTerm
from odradek.broker.partition.partition import Partition, PartitionContext, log_offline, log_postponed
from odradek.broker.partition.ports import LeadershipListener, Replication
from odradek.broker.partition.sliced_updates import SlicedUpdates
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage, PartitionImage, TopicImage
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.clock import Clock
from odradek.runtime.repeated_tasks import report
from odradek.runtime.rest import Pace
from odradek.runtime.tasks import Spawn
from odradek.storage.config import LogConfig
from odradek.storage.data_directory.log_manager import LogManager, StaleCheckpoint
from odradek.storage.disk.port import ResourcesExhausted

ConfigOf = Callable[[Mapping[str, str]], LogConfig]
"""Return the log configuration of a topic, given the properties that are set for the topic."""
ROLE_CHANGES_PER_SLICE: Final = 128
"""Maximum role changes in one slice. A change takes about 40 us."""
SLICE_US_MAX: Final = 2_000
"""Microseconds after which a slice ends early."""
LOG_SLICE_US_MAX: Final = 1_000
"""Microseconds after which a slice that has created or deleted a log ends early. One log takes about 0.2 ms, and on a
slow disk more than 1 ms."""
RESOURCE_RETRY_S: Final = 0.5
"""Seconds between two attempts to open a log while no file descriptor or memory is left."""
CREATE_LOG_COST: Final = 8
"""Cost of creating or deleting a log, in role changes."""
REST_FACTOR: Final = 3
"""Length of the rest after a slice in which logs were created or deleted, as a multiple of the slice. This work takes
at most a quarter of the event loop, like compaction."""
CREATION_REST_FACTOR: Final = 7
"""Like REST_FACTOR, while a client creates many partitions. The delivery of their records takes up to a third of the
event loop, too."""
CREATION_S: Final = 0.25
"""Seconds for which rests are longer after a change with more new partitions than one slice. A client creates 10,000
partitions in ten topics, and each topic is one change. They arrive within 0.6 s."""
REST_S_MAX: Final = 0.02
"""Maximum seconds of one rest. A slice takes 1 ms, and longer only if the disk or other processes delay it."""

FETCHES_MISSED_MAX: Final = 2
"""Maximum waits of a follower's fetch (replica.fetch.wait.max.ms) without a new fetch, while the leader is sure that it
leads. That is 1 s by default; a failure declaration of an isolated broker takes longer."""


class Partitions:
    """Registry of the hosted partitions. Only `on_metadata` changes which partitions this broker hosts and leads."""

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
        self._configs: dict[str, LogConfig] = {}
        """Configuration of each topic of which this broker hosts a partition. Its partitions share one object."""
        self._default_config: LogConfig | None = None
        """Configuration of topics that set nothing, at the last change that was applied to all topics."""
        self._replication = replication
        confirmed_ms = FETCHES_MISSED_MAX * replication.fetch_wait_max_ms
        leader = LeaderContext(node_id, clock, spawn, replication.lag_max_ms, confirmed_ms, replication.broker_epoch_of)
        self._context = PartitionContext(replication, leader, leader_term, self._resigned)
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[UUID, dict[int, Partition]] = {}
        self._failed: dict[tuple[UUID, int], None] = {}
        """Partitions whose log could not be opened, until the broker restarts."""
        self._changed = ChangedPartitions()
        self._registrations = SlicedUpdates("apply broker registrations", _register, spawn)
        self._configurations = SlicedUpdates("apply changed defaults", self._update_config, spawn)
        self._deleted: dict[tuple[str, int], Partition] = {}
        """Partitions of deleted topics whose logs still exist."""
        self._postponed: dict[tuple[UUID, int], None] = {}
        """Partitions whose log is created after stale entries of a deleted log were removed from the checkpoints."""
        self._awaiting_resources: dict[tuple[UUID, int], None] = {}
        """Partitions whose log could not be opened, because no descriptor or memory was left."""
        self._applying = False
        self._creating_until_us = 0
        """Time of the monotonic clock until which a client is expected to create more partitions."""
        self._closed = False
        self._elected: list[Callable[[Partition], None]] = []
        self._listeners: dict[str, LeadershipListener] = {}
        self._image: MetadataImage | None = None

    # ---- look-up ----------------------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition | None:
        """Return a hosted partition by topic name, or None if this broker does not host it."""
        hosted = self._by_name.get(topic)
        return None if hosted is None else hosted.get(index)

    def get_by_id(self, topic_id: UUID, index: int) -> Partition | None:
        """Return a hosted partition by topic id, or None if this broker does not host it."""
        hosted = self._by_id.get(topic_id)
        return None if hosted is None else hosted.get(index)

    def find(self, topic: str, index: int) -> Partition:
        """Return a hosted partition by topic name.

        Raise Refusal if this broker does not host it: UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist,
        KAFKA_STORAGE_ERROR if its log could not be opened, NOT_LEADER_OR_FOLLOWER if this broker is not a replica.
        """
        hosted = self._by_name.get(topic)
        if hosted is not None and index in hosted:
            return hosted[index]
        return self._find_changed(None if self._image is None else self._image.topic(topic), index)

    def find_by_id(self, topic_id: UUID, index: int) -> Partition:
        """Return a hosted partition by topic id.

        Raise Refusal(UNKNOWN_TOPIC_ID) if the topic does not exist, and the errors of `find` in the other cases.
        """
        hosted = self._by_id.get(topic_id)
        if hosted is not None and index in hosted:
            return hosted[index]
        topic = None if self._image is None else self._image.topic_by_id(topic_id)
        if topic is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
        return self._find_changed(topic, index)

    @property
    def is_changing(self) -> bool:
        """True while changes of partitions wait for their slice: the logs of new ones can be missing."""
        return bool(self._changed)

    def awaits_log(self, topic: str | UUID, index: int) -> bool:
        """Return True if this broker has not opened the log of a new partition yet. `find` and `find_by_id` open it."""
        if self._image is None:
            return False
        image = self._image.topic_by_id(topic) if isinstance(topic, UUID) else self._image.topic(topic)
        if image is None or self.get_by_id(image.topic_id, index) is not None:
            return False
        return (image.topic_id, index) in self._changed

    def __iter__(self) -> Iterator[Partition]:
        """Iterate over a copy of all hosted partitions, in the order in which they were opened."""
        return iter([partition for hosted in self._by_name.values() for partition in hosted.values()])

    @property
    def count(self) -> int:
        """Number of hosted partitions."""
        return sum(map(len, self._by_name.values()))

    def hosted(self, topic: str) -> list[Partition]:
        """Return the partitions of `topic` that this broker is a replica of, by index."""
        hosted = self._by_name.get(topic, {})
        return [hosted[index] for index in sorted(hosted)]

    def led(self, topic: str) -> list[Partition]:
        """Return the partitions of `topic` that this broker leads, by index."""
        hosted = self._by_name.get(topic, {})
        return [hosted[index] for index in sorted(hosted) if hosted[index].leads]

    async def checkpoint_log_starts(self) -> None:
        """Write the present log start offsets of all partitions to stable storage. Raise OSError if the disk fails."""
        await self._logs.checkpoint_log_starts()

    def _find_changed(self, topic: TopicImage | None, index: int) -> Partition:
        """Apply a change of the partition that waits for its slice, and return the partition if it is hosted now."""
        if topic is not None and (topic.topic_id, index) in self._changed:
            self._apply(topic.topic_id, index)
            partition = self.get_by_id(topic.topic_id, index)
            if partition is not None:
                return partition
        raise self._not_hosted(topic, index)

    def _not_hosted(self, topic: TopicImage | None, index: int) -> Refusal:
        if topic is None or index not in topic.partitions:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if (topic.topic_id, index) in self._failed:
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR)
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # ---- changes of the metadata ------------------------------------------------------------------------------------

    def listen(self, topic: str, listener: LeadershipListener) -> None:
        """Pass all later elections and resignations of partitions of `topic` to `listener`.

        A topic has at most one listener.
        """
        assert topic not in self._listeners
        self._listeners[topic] = listener

    def on_elected(self, callback: Callable[[Partition], None]) -> None:
        """Call `callback(partition)` whenever a leader epoch begins on this broker."""
        self._elected.append(callback)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply one committed change of the metadata. Call it in commit order."""
        self._image = image
        for deleted in delta.deleted_topics():
            self._delete(deleted)
        # Apply configurations before partitions:
        # 1. An operator raises min.insync.replicas from 1 to 2; then the ISR of a partition shrinks to the leader.
        # 2. One delta contains both changes.
        # 3. If the ISR came first, the leader would commit and acknowledge records (acks=all) that only it has.
        for kind, name in delta.changed_configs():
            if kind == RESOURCE_TOPIC:
                self._configs.pop(name, None)
                self._configure(name)
            elif kind == RESOURCE_BROKER and name in {"", str(self._node_id)}:
                self._configs.clear()
                self._configure_all()
        new = sum(self._add_changed(topic_id, index) is Priority.NEW for topic_id, index in delta.changed_partitions())
        self._begin_slices()
        if new * CREATE_LOG_COST > ROLE_CHANGES_PER_SLICE:
            self._creating_until_us = self._clock.monotonic_us() + round(CREATION_S * 1_000_000)
        if delta.changed_brokers():
            self._registrations.add(partition for partition in self if _has_followers(partition))

    async def close(self) -> None:
        """End all leader terms because the node stops: waiting requests fail with NOT_LEADER_OR_FOLLOWER.

        Delete the logs of all deleted topics. The next start would keep them as strays. Both are done in slices, since
        this node can still lead the metadata log. The roles of partitions do not change after the begin of this call.
        """
        self._closed = True
        self._changed = ChangedPartitions()
        for number, partition in enumerate(self, 1):
            partition.follow(partition.leader_epoch)
            if number % ROLE_CHANGES_PER_SLICE == 0:
                await asyncio.sleep(0)
        while self._deleted:
            self._delete_next()
            await asyncio.sleep(0)

    def _add_changed(self, topic_id: UUID, index: int) -> Priority | None:
        """Add a partition to the changed ones. Return its priority, or None if it is not added."""
        assert self._image is not None
        topic = self._image.topic_by_id(topic_id)
        if topic is None or self._closed:
            return None
        priority = Priority.NEW if self.get_by_id(topic_id, index) is None else Priority.HOSTED
        if topic.name in self._listeners:
            priority = Priority.COORDINATOR
        self._changed.add(topic_id, index, priority)
        return priority

    def _begin_slices(self) -> None:
        """Apply one slice of the changed and deleted partitions, and start a task for the remainder.

        If the task runs already, apply urgent partitions only. The others wait for the end of its rest.
        """
        self._apply_slice(urgent_only=self._applying)
        if (self._changed or self._deleted) and not self._applying:
            self._applying = True
            self._spawn(self._apply_remaining(), "apply partition changes")

    def _apply_slice(self, *, urgent_only: bool = False) -> bool:
        """Apply one slice of the changed and deleted partitions. Return True if logs were created or deleted."""
        has_slow = False
        budget, began_us = ROLE_CHANGES_PER_SLICE, self._clock.monotonic_us()
        while budget > 0 and (self._changed.is_urgent or (not urgent_only and (self._changed or self._deleted))):
            try:
                cost = self._apply_next()
            except Exception as error:  # noqa: BLE001  it concerns one partition, and the others go on
                report(error, self._spawn, "apply partition changes")
                cost = CREATE_LOG_COST
            budget -= cost
            has_slow = has_slow or cost == CREATE_LOG_COST
            if self._clock.monotonic_us() - began_us >= (LOG_SLICE_US_MAX if has_slow else SLICE_US_MAX):
                break
        return has_slow

    def _apply_next(self) -> int:
        """Apply the next change or deletion. Return its cost in role changes."""
        if self._deleted and not self._changed.is_urgent:
            return self._delete_next()
        return self._apply(*self._changed.next())

    async def _apply_remaining(self) -> None:
        pace = Pace(REST_FACTOR, REST_S_MAX)
        try:
            while self._changed or self._deleted:
                is_creating = self._clock.monotonic_us() < self._creating_until_us
                await pace.rest(CREATION_REST_FACTOR if is_creating else REST_FACTOR)
                if not self._apply_slice() or self._changed.is_urgent:
                    pace.resume()
        finally:
            self._applying = False

    def _delete_next(self) -> int:
        """Delete the log of one partition of a deleted topic. Return the cost in role changes."""
        self._remove(self._deleted.pop(next(iter(self._deleted))))
        return CREATE_LOG_COST

    def _apply(self, topic_id: UUID, index: int) -> int:
        """Bring one partition into the state of the metadata image. Return the cost in role changes."""
        self._changed.discard(topic_id, index)
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
            return CREATE_LOG_COST
        if partition is not None:
            self._change_role(partition, image)
            return 1
        cost = CREATE_LOG_COST if self._logs.get(topic.name, index) is None else 1
        partition = self._host(topic, index)
        if partition is not None:
            self._change_role(partition, image)
        return cost

    def _change_role(self, partition: Partition, image: PartitionImage) -> None:
        self._configurations.update_now(partition)  # before a smaller ISR: see `on_metadata`
        if image.leader != self._node_id:
            partition.follow(image.leader_epoch)
            if partition.online:
                self._replication.follow(partition, image.leader)
            return
        self._replication.stop_following(partition)
        # After an unclean election, the leader's next AlterPartition request marks the partition as recovered
        # (KIP-704).
        if partition.lead(LeaderAndIsr(image.leader_epoch, image.partition_epoch, image.replicas, image.isr)):
            self._replication.elected(partition)
            for callback in self._elected:
                callback(partition)
            listener = self._listeners.get(partition.topic)
            if listener is not None:
                listener.elected(partition)

    def _drop(self, partition: Partition, leader_epoch: int) -> None:
        """Remove a partition that this broker is no longer a replica of."""
        partition.follow(leader_epoch)
        hosted = self._by_id[partition.topic_id]
        del hosted[partition.index]
        self._remove(partition)

    def _remove(self, partition: Partition) -> None:
        self._replication.stop_following(partition)
        partition.delete()
        topic, index = partition.topic, partition.index
        self._spawn(_delete_log(topic, index, self._logs.delete(topic, index)), f"delete {topic}-{index}")

    def _host(self, topic: TopicImage, index: int) -> Partition | None:
        """Open or create the log of a partition. Return None if that failed, or has to wait for the checkpoints."""
        assert self._image is not None
        former = self._deleted.pop((topic.name, index), None)
        if former is not None:
            self._remove(former)
        config = self._config(topic.name)
        try:
            log = self._logs.create(topic.name, index, topic.topic_id, config, self._clock.wall_ms())
        except StaleCheckpoint:
            if not self._postponed:
                self._spawn(self._host_postponed(), "remove stale checkpoint entries")
            self._postponed[topic.topic_id, index] = None
            return None
        except ResourcesExhausted as error:
            log_postponed("open the log", topic.name, index, error)
            self._await_resources([(topic.topic_id, index)])
            return None
        except OSError as error:
            self._fail(topic, index, error)
            return None
        partition = Partition(log, self._context)
        hosted = self._by_id.setdefault(topic.topic_id, {})
        hosted[index] = partition
        self._by_name[topic.name] = hosted
        return partition

    def _fail(self, topic: TopicImage, index: int, error: OSError) -> None:
        log_offline(topic.name, index, error)
        self._failed[topic.topic_id, index] = None
        self._replication.went_offline(topic.name, index, error)

    def _await_resources(self, keys: Iterable[tuple[UUID, int]]) -> None:
        if not self._awaiting_resources:
            self._spawn(self._host_awaiting(), "open logs when descriptors are free")
        self._awaiting_resources.update(dict.fromkeys(keys))

    async def _host_awaiting(self) -> None:
        """Try again to open the logs that found no descriptor or memory. A client receives NOT_LEADER_OR_FOLLOWER."""
        await asyncio.sleep(RESOURCE_RETRY_S)
        awaiting, self._awaiting_resources = self._awaiting_resources, {}
        for key in awaiting:
            self._add_changed(*key)
        self._begin_slices()

    async def _host_postponed(self) -> None:
        failure: OSError | None = None
        try:
            await self._logs.remove_stale_entries()
        except ResourcesExhausted as error:
            postponed, self._postponed = self._postponed, {}
            for topic_id, index in postponed:
                topic = self._image.topic_by_id(topic_id) if self._image is not None else None
                if topic is not None:
                    log_postponed("write the checkpoints", topic.name, index, error)
            self._await_resources(postponed)
            return
        except OSError as error:
            failure = error
        postponed, self._postponed = self._postponed, {}
        if failure is None:
            for key in postponed:
                self._add_changed(*key)
            self._begin_slices()
            return
        assert self._image is not None
        for topic_id, index in postponed:
            topic = self._image.topic_by_id(topic_id)
            if topic is not None and self.get_by_id(topic_id, index) is None:
                self._fail(topic, index, failure)

    def _delete(self, topic: TopicImage) -> None:
        self._configs.pop(topic.name, None)
        hosted = self._by_id.pop(topic.topic_id, {})
        if self._by_name.get(topic.name) is hosted:
            del self._by_name[topic.name]
        for partition in hosted.values():
            # The registry would not find two generations of one name: the log of the first one is deleted now.
            former = self._deleted.pop((partition.topic, partition.index), None)
            if former is not None:
                self._remove(former)
            self._deleted[partition.topic, partition.index] = partition
        self._changed.discard_topic(topic.topic_id)
        for key in [key for key in self._failed if key[0] == topic.topic_id]:
            del self._failed[key]

    def _configure_all(self) -> None:
        """Apply a change of the configuration of this broker, or of all brokers, unless no log depends on it.

        It reaches the partitions in slices, but each partition before its next change of role or ISR.
        """
        default = self._config_of({})
        if default != self._default_config:
            self._default_config = default
            self._configurations.add(self)

    def _configure(self, topic: str) -> None:
        for partition in self._by_name.get(topic, {}).values():
            partition.configure(self._config(topic))

    def _update_config(self, partition: Partition) -> None:
        if self.get(partition.topic, partition.index) is partition:  # otherwise it left this broker while it waited
            partition.configure(self._config(partition.topic))

    def _config(self, topic: str) -> LogConfig:
        config = self._configs.get(topic)
        if config is None:
            assert self._image is not None
            config = self._configs[topic] = self._config_of(self._image.topic_config(topic))
        return config

    def _resigned(self, partition: Partition) -> None:
        listener = self._listeners.get(partition.topic)
        if listener is not None:
            listener.resigned(partition)


def _has_followers(partition: Partition) -> bool:
    return partition.leader_term is not None and not partition.leader_term.replicas.alone


def _register(partition: Partition) -> None:
    term = partition.leader_term
    if term is not None:  # otherwise the term has ended while the partition waited
        term.register()
        term.update_high_watermark()


async def _delete_log(topic: str, index: int, deletion: Awaitable[None]) -> None:
    """Delete the files of a log. If the disk fails, the files stay; the partition is removed in either case."""
    try:
        await deletion
    except OSError as error:
        log_offline(topic, index, error)
