"""All partitions of this broker: hosted as the metadata log says, found by name or by topic id."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, Protocol
from uuid import UUID

from broker.partition import Leadership, Partition, Surroundings, say_offline
from cluster.delta import MetadataDelta
from cluster.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage, PartitionImage, TopicImage
from protocol.errors import ErrorCode, Refusal
from runtime.clock import Clock
from storage.config import LogConfig
from storage.log import PartitionLog

ConfigOf = Callable[[Mapping[str, str]], LogConfig]
"""The log configuration of a topic out of the properties that were set for it."""
Spawn = Callable[[Coroutine[Any, Any, Any], str], Any]


class Logs(Protocol):
    """The logs of the data directory (`storage.log_manager.LogManager`)."""

    def create(self, topic: str, partition: int, topic_id: UUID, config: LogConfig, now_ms: int) -> PartitionLog:
        """The log of the partition, made unless it is there; one of another topic id makes room. Raises OSError."""

    def delete(self, topic: str, partition: int) -> Coroutine[Any, Any, None]:
        """The log is taken out when it is called; the coroutine makes that durable. The coroutine raises OSError."""


class LeadershipListener(Protocol):
    """Who needs to know which partitions of one topic this broker leads (the coordinators)."""

    def elected(self, partition: Partition) -> None:
        """A new leader epoch has begun here."""

    def resigned(self, partition: Partition) -> None:
        """It has ended. Maybe from inside an append of the listener's own."""


class Partitions:
    """The registry. `on_metadata` is its only source of what is hosted and led."""

    def __init__(
        self,
        *,
        node_id: int,
        logs: Logs,
        clock: Clock,
        commit_gate: Any,
        spawn: Spawn,
        config_of: ConfigOf,
    ) -> None:
        self._node_id = node_id
        self._logs = logs
        self._clock = clock
        self._spawn = spawn
        self._config_of = config_of
        self._surroundings = Surroundings(commit_gate, spawn, self._resigned)
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[UUID, dict[int, Partition]] = {}
        self._unopened: dict[tuple[UUID, int], None] = {}
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
        raise self._absent(None if self._image is None else self._image.topic(topic), index)

    def find_by_id(self, topic_id: UUID, index: int) -> Partition:
        """As `find`; UNKNOWN_TOPIC_ID for a topic that is not known at all."""
        hosted = self._by_id.get(topic_id)
        if hosted is not None and index in hosted:
            return hosted[index]
        topic = None if self._image is None else self._image.topic_by_id(topic_id)
        if topic is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
        raise self._absent(topic, index)

    def __iter__(self) -> Iterator[Partition]:
        """Every hosted partition, in order of hosting; safe against changes while iterating."""
        return iter([partition for hosted in self._by_name.values() for partition in hosted.values()])

    def led(self, topic: str) -> list[Partition]:
        """The partitions of `topic` that this broker leads, by index."""
        hosted = self._by_name.get(topic, {})
        return [hosted[index] for index in sorted(hosted) if hosted[index].leads]

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

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow what has been committed to the metadata log. Called in commit order."""
        self._image = image
        for deleted in delta.deleted_topics():
            self._delete(deleted)
        for topic_id, index in delta.changed_partitions():
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                self._change(topic, topic.partitions[index])
        for kind, name in delta.changed_configs():
            if kind == RESOURCE_TOPIC:
                self._configure(name, image)
            elif kind == RESOURCE_BROKER:
                for topic_name in list(self._by_name):
                    self._configure(topic_name, image)

    def close(self) -> None:
        """The node stops: whoever waits is told that this broker leads nothing any more."""
        for partition in self:
            partition.follow(partition.leader_epoch)

    def _change(self, topic: TopicImage, image: PartitionImage) -> None:
        if self._node_id not in image.replicas:
            return
        partition = self.get_by_id(topic.topic_id, image.index) or self._host(topic, image.index)
        if partition is None:
            return
        if image.leader != self._node_id:
            partition.follow(image.leader_epoch)
        elif partition.lead(Leadership(image.leader_epoch, len(image.replicas), len(image.isr))):
            listener = self._listeners.get(topic.name)
            if listener is not None:
                listener.elected(partition)

    def _host(self, topic: TopicImage, index: int) -> Partition | None:
        assert self._image is not None
        config = self._config_of(self._image.topic_config(topic.name))
        try:
            log = self._logs.create(topic.name, index, topic.topic_id, config, self._clock.wall_ms())
        except OSError as error:
            say_offline(topic.name, index, error)
            self._unopened[topic.topic_id, index] = None
            return None
        partition = Partition(log, self._surroundings)
        hosted = self._by_id.setdefault(topic.topic_id, {})
        hosted[index] = partition
        self._by_name[topic.name] = hosted
        return partition

    def _delete(self, topic: TopicImage) -> None:
        hosted = self._by_id.pop(topic.topic_id, {})
        if self._by_name.get(topic.name) is hosted:
            del self._by_name[topic.name]
        for index, partition in hosted.items():
            partition.delete()
            self._spawn(
                _deleted(topic.name, index, self._logs.delete(topic.name, index)), f"delete {topic.name}-{index}"
            )
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
        say_offline(topic, index, error)
