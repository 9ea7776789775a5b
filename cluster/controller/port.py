"""What the rest of a broker asks of the controller: values, and the port that takes them.

The controller may be this process or another one: a call is answered when its records are committed. Refusals of a whole call
are raised as `odradek.protocol.errors.Refusal`; refusals of one topic stand in its result.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from odradek.cluster.metadata.image import Endpoint, VersionRange

NO_TOPIC_ID = UUID(int=0)
USE_DEFAULT = -1
PRODUCER_ID_BLOCK_SIZE = 1_000


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One effective setting as CreateTopics v5+ reports it. `source` is DescribeConfigs' number (1 topic, 4 static, 5 default...)."""

    name: str
    value: str | None
    source: int
    read_only: bool = False
    is_sensitive: bool = False


class TopicConfigs(Protocol):
    """Knowledge about topic settings, from the broker's configuration."""

    @property
    def num_partitions(self) -> int:
        """`num.partitions`."""

    @property
    def default_replication_factor(self) -> int:
        """`default.replication.factor`."""

    @property
    def unclean_leader_election_enable(self) -> bool:
        """`unclean.leader.election.enable`."""

    @property
    def min_insync_replicas(self) -> int:
        """`min.insync.replicas`."""

    def validate(self, topic: str, configs: Mapping[str, str]) -> None:
        """Raises Refusal(INVALID_CONFIG) with Kafka's message for an unknown name or a bad value."""

    def validate_broker(self, configs: Mapping[str, str]) -> None:
        """What may be set for brokers while they run. Raises Refusal(INVALID_CONFIG, INVALID_REQUEST)."""

    def validate_group(self, configs: Mapping[str, str]) -> None:
        """What may be set for a group. Raises Refusal(INVALID_CONFIG)."""

    def list_default(self, kind: int, name: str) -> tuple[str, ...] | None:
        """What the setting `name` of a topic or broker is where nothing is set; None when it is no list, or unknown."""

    def effective(self, topic: str, configs: Mapping[str, str]) -> tuple[ConfigValue, ...]:
        """Every setting of a topic that has `configs` set, in order of name."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. With `assignments` (partition index, broker ids) the two numbers must be USE_DEFAULT."""

    name: str
    num_partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """On error everything behind `message` holds its default. With validate_only `topic_id` is NO_TOPIC_ID."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: UUID = NO_TOPIC_ID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: tuple[ConfigValue, ...] = ()


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """`count` is the new total. `assignments`: broker ids of each partition that is added; None lets the controller place."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic to delete, by name (topic_id NO_TOPIC_ID) or by id (name None)."""

    name: str | None = None
    topic_id: UUID = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class TopicResult:
    """`name` None when an unknown id was given."""

    name: str | None
    topic_id: UUID = NO_TOPIC_ID
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Ids from `first` on, `length` of them."""

    first: int
    length: int = PRODUCER_ID_BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """BrokerRegistration v4. `previous_broker_epoch` comes from the clean-shutdown marker, -1 without one."""

    broker_id: int
    cluster_id: str
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]
    directories: tuple[UUID, ...]
    rack: str | None = None
    previous_broker_epoch: int = -1


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat:
    """BrokerHeartbeat. `metadata_offset`: highest offset whose metadata the broker has applied."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """One feature of UpdateFeatures. A level of 0 switches it off; lowering needs `allow_downgrade`."""

    name: str
    max_level: int
    allow_downgrade: bool = False


@dataclass(frozen=True, slots=True)
class FeatureResult:
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionIsr:
    """What the leader of one partition wants its in-sync replicas to be (AlterPartition v3).

    `isr`: (broker id, broker epoch), the epoch -1 where the leader does not know it. `leader_epoch` and `partition_epoch` are those
    on which the wish was formed. `recovering`: the leader was elected uncleanly and has not recovered yet.
    """

    topic_id: UUID
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    recovering: bool = False


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """The state of the partition after an AlterPartition; with an error everything behind it holds its default."""

    topic_id: UUID
    index: int
    error: ErrorCode = ErrorCode.NONE
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()
    recovering: bool = False


class BrokerControllerPort(Protocol):
    """What brokers ask of the active controller for themselves. `timeout_ms` bounds the wait for the commit.

    Every call may raise Refusal: NOT_CONTROLLER while none is active, REQUEST_TIMED_OUT, and what its own line says.
    """

    def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int | None = None
    ) -> Awaitable[tuple[CreatedTopic, ...]]:
        """One result per name, in order of the request."""

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> Awaitable[ProducerIdBlock]:
        """BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH."""

    def register_broker(self, registration: BrokerRegistration) -> Awaitable[int]:
        """The broker epoch. INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION, UNSUPPORTED_VERSION."""

    def heartbeat(self, heartbeat: BrokerHeartbeat) -> Awaitable[HeartbeatReply]:
        """BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH."""

    def alter_partition(
        self, broker_id: int, broker_epoch: int, partitions: Sequence[PartitionIsr]
    ) -> Awaitable[tuple[AlteredPartition, ...]]:
        """One result per item, in order. STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED for the whole call."""


@dataclass(frozen=True, slots=True)
class NewReplicas:
    """Where the replicas of a partition shall be, the preferred leader first; None: where they were before."""

    topic: str
    index: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    topic: str
    index: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionResult:
    topic: str
    index: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class ConfigOperation(IntEnum):
    """What is done to one setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Changes of the settings of one topic (kind 2), one broker (4, its id), all brokers (4, "") or a group (32): (name, how, value).

    `replaces`: what is set and not named goes (AlterConfigs).
    """

    kind: int
    name: str
    changes: tuple[tuple[str, ConfigOperation, str | None], ...]
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class ConfigResult:
    kind: int
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """Quotas of one entity, (type, name) as they were given: (key, value), the value None to take it away (KIP-546)."""

    entity: tuple[tuple[str, str | None], ...]
    changes: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True, slots=True)
class QuotaResult:
    entity: tuple[tuple[str, str | None], ...]
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """Where a controller listens (KIP-919)."""

    controller_id: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]


class ControllerPort(Protocol):
    """The active controller, wherever it is. `timeout_ms` bounds the wait for the commit: REQUEST_TIMED_OUT beyond it.

    Every call may raise Refusal: NOT_CONTROLLER while none is active, REQUEST_TIMED_OUT, and what its own line says.
    """

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Awaitable[tuple[CreatedTopic, ...]]:
        """One result per name, in order of the request; a name that is there twice gets one INVALID_REQUEST. All topics of
        one call are created in one atomic batch. POLICY_VIOLATION when the call asks for more than PARTITIONS_PER_CALL_MAX.
        """

    def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Awaitable[tuple[TopicResult, ...]]:
        """One result per name, in order."""

    def delete_topics(
        self, topics: Sequence[TopicName], *, timeout_ms: int | None = None
    ) -> Awaitable[tuple[TopicResult, ...]]:
        """One result per item, in order; name and id are both filled in where the topic was found."""

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> Awaitable[ProducerIdBlock]:
        """BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH."""

    def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Awaitable[tuple[FeatureResult, ...]]:
        """All or nothing: one bad update refuses the others too (INVALID_REQUEST), as in Kafka 4."""

    def register_broker(self, registration: BrokerRegistration) -> Awaitable[int]:
        """The broker epoch. INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION, UNSUPPORTED_VERSION."""

    def heartbeat(self, heartbeat: BrokerHeartbeat) -> Awaitable[HeartbeatReply]:
        """BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH."""

    def alter_partition(
        self, broker_id: int, broker_epoch: int, partitions: Sequence[PartitionIsr]
    ) -> Awaitable[tuple[AlteredPartition, ...]]:
        """One result per item, in order. STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED for the whole call."""

    def alter_reassignments(
        self, partitions: Sequence[NewReplicas], *, allow_resize: bool = True, timeout_ms: int | None = None
    ) -> Awaitable[tuple[PartitionResult, ...]]:
        """One result per item, in order. `allow_resize`: the number of replicas may change."""

    def list_reassignments(
        self, partitions: Sequence[tuple[str, int]] | None, *, timeout_ms: int | None = None
    ) -> Awaitable[tuple[OngoingReassignment, ...]]:
        """Those under way among `partitions` (topic, index); None: among all."""

    def elect_leaders(
        self, partitions: Sequence[tuple[str, int]] | None, *, unclean: bool = False, timeout_ms: int | None = None
    ) -> Awaitable[tuple[PartitionResult, ...]]:
        """Preferred leaders, or leaders at any price where there is none. One result per partition; None: for all partitions
        where there was something to do.
        """

    def alter_configs(
        self, resources: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Awaitable[tuple[ConfigResult, ...]]:
        """One result per resource, in order."""

    def alter_client_quotas(
        self, entities: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> Awaitable[tuple[QuotaResult, ...]]:
        """One result per entity, in order."""

    def unregister_broker(self, broker_id: int) -> Awaitable[None]:
        """BROKER_ID_NOT_REGISTERED."""

    def register_controller(self, registration: ControllerRegistration) -> Awaitable[None]:
        """Say where a controller listens (KIP-919)."""
