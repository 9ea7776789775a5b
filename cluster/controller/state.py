"""The state that all decisions of the controller read.

The log holds the hard state; sessions are soft and start anew.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from uuid import UUID

from odradek.cluster.controller.messages.tokens import TokenRules
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    EMPTY_IMAGE,
    RESERVED_IDS_MAX,
    MetadataImage,
)
from odradek.cluster.metadata.records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    DelegationTokenRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from odradek.cluster.metadata.topic_names import collision_key
from odradek.frozen import frozen_dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from odradek.cluster.controller.ports import TopicConfigs
    from odradek.cluster.metadata.records import MetadataRecord
    from odradek.cluster.randomness import Randomness
    from odradek.protocol.acls import Acl
    from odradek.runtime.shard import SoftChange, Timer

R_co = TypeVar("R_co", covariant=True)

DASH = 62
"""Value of '-' in base64url. An id that begins with it looks like an option on a command line."""


@frozen_dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Configuration of the controller on node `node_id`.

    `leader_balance_interval_ms` is None if `auto.leader.rebalance.enable` is false.
    """

    node_id: int
    cluster_id: str
    session_timeout_ms: int = 9_000
    leader_balance_interval_ms: int | None = 300_000
    leader_imbalance_percentage: int = 10
    unclean_election_interval_ms: int = 300_000
    tokens: TokenRules = field(default_factory=TokenRules)


@frozen_dataclass(frozen=True, slots=True)
class Notice:
    """A log event, written when the records of its decision are committed."""

    event: str
    fields: tuple[tuple[str, object], ...] = ()


@frozen_dataclass(frozen=True, slots=True)
class ControllerResult(Generic[R_co]):
    """The decision on one command: the reply, the records of its changes (one atomic batch), and log events.

    `more`: a job has left work for its next run. `soft`: changes of soft state, made with the records. `timers` are
    set, and the commands that wait for `keys` are decided again.
    """

    reply: R_co
    records: tuple[MetadataRecord, ...] = ()
    notices: tuple[Notice, ...] = ()
    more: bool = False
    soft: tuple[SoftChange, ...] = ()
    timers: tuple[Timer, ...] = ()
    keys: tuple[Hashable, ...] = ()


@dataclass(slots=True)
class Session:
    """A broker's session.

    `metadata_offset`: the last offset that the broker has applied, -1: unknown. Times are monotonic.
    """

    broker_epoch: int
    last_contact_ms: int
    metadata_offset: int = -1


@dataclass(slots=True)
class ControllerState:
    """The state of the controller. `next_offset()` returns the offset of the next record in the log."""

    config: ControllerConfig
    configs: TopicConfigs
    rng: Randomness
    next_offset: Callable[[], int]
    sessions: dict[int, Session] = field(default_factory=dict)
    draining: dict[int, bool] = field(default_factory=dict)
    """Brokers whose leaders are moved before they are fenced, and whether that is complete.

    They count as inactive in elections. Soft state.
    """
    stopping: dict[int, int] = field(default_factory=dict)
    """Broker id -> epoch of the brokers that have requested a controlled shutdown. Soft state."""
    preferred_elections: Counter[int] = field(default_factory=Counter)
    """Elections of preferred leaders per broker since the last periodic check (`preferred`). Soft state."""
    shutdown_offsets: dict[int, int] = field(default_factory=dict)
    collision_keys: dict[str, str] = field(default_factory=dict)
    """Name of the topic with each collision key. It follows from the image, and saves a pass over all topics."""
    acl_ids: dict[Acl, UUID] = field(default_factory=dict)
    """Id of each ACL. It follows from the image, and saves a pass over all ACLs."""
    token_ids: dict[bytes, str] = field(default_factory=dict)
    """Id of each delegation token by the fingerprint of its secret. It follows from the image and from `TokenRules`."""
    _delta: MetadataDelta = field(default_factory=lambda: MetadataDelta(EMPTY_IMAGE))

    def start_from(self, image: MetadataImage) -> None:
        """Start from `image`, which contains committed records only. The caller replays the records after it."""
        self._delta = MetadataDelta(image)
        self.collision_keys = {collision_key(name): name for name in image.topics}
        self.acl_ids = {acl: acl_id for acl_id, acl in image.acls.items()}
        self.token_ids = {}
        for token_id in image.tokens:
            self._index_token(token_id)
        self.shutdown_offsets = {
            broker_id: image.offset for broker_id, broker in image.brokers.items() if broker.in_controlled_shutdown
        }

    @property
    def image(self) -> MetadataImage:
        """The image of all applied records, committed or not."""
        if not self._delta.is_empty:
            self._delta = MetadataDelta(self._delta.build())
        return self._delta.base

    @property
    def in_transaction(self) -> bool:
        return self._delta.in_transaction

    def replay(self, offset: int, epoch: int, record: MetadataRecord) -> None:
        """Apply a record. Raise UnsupportedMetadata or InconsistentMetadata: the node must stop."""
        kind = type(record)
        if kind in _INDEX_REMOVAL:
            _INDEX_REMOVAL[kind](self, record)
        self._delta.replay(offset, epoch, record)
        if kind in _INDEX_ADDITION:
            _INDEX_ADDITION[kind](self, offset, record)

    def _index_removed_topic(self, record: RemoveTopicRecord) -> None:
        removed = self._delta.changes.topics.get(record.topic_id)
        if removed is not None and self.collision_keys.get(collision_key(removed.name)) == removed.name:
            del self.collision_keys[collision_key(removed.name)]

    def _index_removed_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        removed = self._delta.changes.acls.get(record.id)
        if removed is not None:
            self.acl_ids.pop(removed, None)

    def _index_removed_token(self, record: RemoveDelegationTokenRecord) -> None:
        if self.config.tokens.enabled:
            self.token_ids.pop(self.config.tokens.fingerprint(record.token_id), None)

    def _index_new_topic(self, offset: int, record: TopicRecord) -> None:
        self.collision_keys[collision_key(record.name)] = record.name

    def _index_new_acl(self, offset: int, record: AccessControlEntryRecord) -> None:
        acl = self._delta.changes.acls.get(record.id)
        assert acl is not None
        self.acl_ids[acl] = record.id

    def _index_new_token(self, offset: int, record: DelegationTokenRecord) -> None:
        self._index_token(record.token_id)

    def _index_shutdown(self, offset: int, record: BrokerRegistrationChangeRecord | RegisterBrokerRecord) -> None:
        if record.in_controlled_shutdown:
            self.shutdown_offsets[record.broker_id] = offset

    def _index_token(self, token_id: str) -> None:
        if self.config.tokens.enabled:
            self.token_ids[self.config.tokens.fingerprint(token_id)] = token_id

    def new_uuid(self) -> UUID:
        """Return a random id (version 4) that is not reserved and whose text does not begin with a dash."""
        while True:
            candidate = UUID(int=self.rng.getrandbits(128), version=4)
            if candidate.int > RESERVED_IDS_MAX and candidate.int >> 122 != DASH:
                return candidate

    def default_directory(self, broker_id: int) -> UUID:
        """Return the directory for a new replica of a broker.

        It is known only if the broker has one log directory (KIP-858).
        """
        broker = self.image.brokers.get(broker_id)
        if broker is None or not broker.directories:
            return DIRECTORY_MIGRATING
        return broker.directories[0] if len(broker.directories) == 1 else DIRECTORY_UNASSIGNED

    @property
    def elr_enabled(self) -> bool:
        """True if eligible leader replicas (KIP-966) are enabled."""
        return self.image.feature(ELIGIBLE_LEADER_REPLICAS_VERSION) >= 1

    def is_active(self, broker_id: int) -> bool:
        """Return True if the broker may lead partitions and join ISRs."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_id not in self.draining


_INDEX_REMOVAL: Final[Mapping[type[MetadataRecord], Callable[[ControllerState, Any], None]]] = {
    RemoveTopicRecord: ControllerState._index_removed_topic,
    RemoveAccessControlEntryRecord: ControllerState._index_removed_acl,
    RemoveDelegationTokenRecord: ControllerState._index_removed_token,
}
"""Changes of the indexes before a record is applied, while the image contains what the record removes."""
_INDEX_ADDITION: Final[Mapping[type[MetadataRecord], Callable[[ControllerState, int, Any], None]]] = {
    TopicRecord: ControllerState._index_new_topic,
    AccessControlEntryRecord: ControllerState._index_new_acl,
    DelegationTokenRecord: ControllerState._index_new_token,
    BrokerRegistrationChangeRecord: ControllerState._index_shutdown,
    RegisterBrokerRecord: ControllerState._index_shutdown,
}
"""Changes of the indexes after a record with its offset is applied."""
