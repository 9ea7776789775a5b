"""Commands of the controller: one for each request of ControllerService, and those of the controller's own node."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from odradek.frozen import frozen_dataclass
from odradek.runtime.shard import ExpiryCommand

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from odradek.cluster.controller.cursor import Cursor
    from odradek.cluster.controller.election import Election
    from odradek.cluster.controller.messages.brokers import BrokerHeartbeat, BrokerRegistration, ControllerRegistration
    from odradek.cluster.controller.messages.partitions import NewReplicas, PartitionIsr
    from odradek.cluster.controller.messages.settings import (
        ConfigChange,
        FeatureUpdate,
        NewAcl,
        QuotaChange,
        ScramChange,
    )
    from odradek.cluster.controller.messages.tokens import NewToken
    from odradek.cluster.controller.messages.topics import NewPartitions, NewTopic, TopicName
    from odradek.cluster.controller.removal import Removal
    from odradek.cluster.metadata.image import ScramKey
    from odradek.protocol.sasl.scram import Credential


@frozen_dataclass(frozen=True, slots=True)
class Bootstrap:
    """The first command of a new active controller: writes the first records of an empty log, and starts sessions."""

    levels: Mapping[str, int] = field(default_factory=dict)
    at_ms: int = 0
    scram: Mapping[ScramKey, Credential] = field(default_factory=dict)
    """The first SCRAM credentials."""


@frozen_dataclass(frozen=True, slots=True)
class CreateTopics:
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@frozen_dataclass(frozen=True, slots=True)
class CreatePartitions:
    topics: tuple[NewPartitions, ...]
    validate_only: bool = False


@frozen_dataclass(frozen=True, slots=True)
class DeleteTopics:
    topics: tuple[TopicName, ...]


@frozen_dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    broker_id: int
    broker_epoch: int


@frozen_dataclass(frozen=True, slots=True)
class UpdateFeatures:
    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


@frozen_dataclass(frozen=True, slots=True)
class RegisterBroker:
    """Register a broker. `at_ms` is monotonic, here and below: sessions are not persisted."""

    registration: BrokerRegistration
    at_ms: int


@frozen_dataclass(frozen=True, slots=True)
class RegisterController:
    registration: ControllerRegistration


@frozen_dataclass(frozen=True, slots=True)
class Heartbeat:
    heartbeat: BrokerHeartbeat
    at_ms: int


@frozen_dataclass(frozen=True, slots=True)
class AlterPartition:
    """ISR changes that broker `broker_id` requests for partitions that it leads."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[PartitionIsr, ...]


@frozen_dataclass(frozen=True, slots=True)
class AlterReassignments:
    partitions: tuple[NewReplicas, ...]
    allow_resize: bool = True


@frozen_dataclass(frozen=True, slots=True)
class ListReassignments:
    """List the reassignments of `partitions` (topic, index), or of all partitions if None.

    `topics`: the topics whose partitions "all" means. None: all topics.
    """

    partitions: tuple[tuple[str, int], ...] | None
    topics: tuple[str, ...] | None = None


@frozen_dataclass(frozen=True, slots=True)
class AlterConfigs:
    resources: tuple[ConfigChange, ...]
    validate_only: bool = False


@frozen_dataclass(frozen=True, slots=True)
class AlterClientQuotas:
    entities: tuple[QuotaChange, ...]
    validate_only: bool = False


@frozen_dataclass(frozen=True, slots=True)
class CreateAcls:
    acls: tuple[NewAcl, ...]


@frozen_dataclass(frozen=True, slots=True)
class RemoveAcls:
    """Remove the ACLs with these ids. Ids without an ACL are ignored."""

    ids: tuple[UUID, ...]


@frozen_dataclass(frozen=True, slots=True)
class AlterScramCredentials:
    changes: tuple[ScramChange, ...]


@frozen_dataclass(frozen=True, slots=True)
class CreateToken:
    new: NewToken


@frozen_dataclass(frozen=True, slots=True)
class RenewToken:
    """Renew the delegation token with this HMAC for `principal`. `period_ms` not positive: for the longest time."""

    principal: str
    hmac: bytes = field(repr=False)
    period_ms: int


@frozen_dataclass(frozen=True, slots=True)
class ExpireToken:
    """Let the delegation token with this HMAC expire for `principal`. `period_ms` negative: remove it now."""

    principal: str
    hmac: bytes = field(repr=False)
    period_ms: int


@frozen_dataclass(frozen=True, slots=True)
class RemoveExpiredTokens(ExpiryCommand):
    """Remove delegation tokens that have expired, at intervals of `delegation.token.expiry.check.interval.ms`."""


@frozen_dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Elect the leaders of `partitions` (topic, index), or of all partitions if None.

    `topics`: the topics whose partitions "all" means. None: all topics.
    """

    partitions: tuple[tuple[str, int], ...] | None
    election: Election
    topics: tuple[str, ...] | None = None


@frozen_dataclass(frozen=True, slots=True)
class BalanceLeaders:
    """Move leaders to preferred replicas, as `auto.leader.rebalance.enable` requires."""


@frozen_dataclass(frozen=True, slots=True)
class ElectPreferred:
    """Move leaders to a broker that joined the ISRs of partitions that prefer it, from `cursor` on. None: from all."""

    broker_id: int
    cursor: Cursor | None = None


@frozen_dataclass(frozen=True, slots=True)
class ElectUnclean:
    """Elect leaders in topics whose `unclean.leader.election.enable` was set after they had lost them."""


@frozen_dataclass(frozen=True, slots=True)
class ElectOnline:
    """Elect leaders for the partitions without one, from `cursor` on. None: for all of them."""

    cursor: Cursor | None = None


@frozen_dataclass(frozen=True, slots=True)
class DrainBroker:
    """Move leaders and ISR memberships away from a broker, from `cursor` on, before a command that removes it.

    `stops`: the broker has requested a controlled shutdown.
    """

    broker_id: int
    removal: Removal
    cursor: Cursor
    stops: bool = False


@frozen_dataclass(frozen=True, slots=True)
class ReleaseBroker:
    """End the drain of a broker that no command has removed: it may lead again."""

    broker_id: int


@frozen_dataclass(frozen=True, slots=True)
class FenceBroker:
    """Fence a broker that has failed: it loses its leaders and its ISR memberships. A fenced broker does not change.

    With a `broker_epoch`, the command is about that incarnation only: STALE_BROKER_EPOCH if another one is registered.
    """

    broker_id: int
    broker_epoch: int | None = None


@frozen_dataclass(frozen=True, slots=True)
class UnfenceBroker:
    broker_id: int


@frozen_dataclass(frozen=True, slots=True)
class UnregisterBroker:
    broker_id: int


@frozen_dataclass(frozen=True, slots=True)
class UnregisterController:
    controller_id: int


@frozen_dataclass(frozen=True, slots=True)
class ExpireSessions:
    """Fence brokers whose last heartbeat is older than the session time-out."""

    at_ms: int


Command: TypeAlias = (
    Bootstrap
    | CreateTopics
    | CreatePartitions
    | DeleteTopics
    | AllocateProducerIds
    | UpdateFeatures
    | RegisterBroker
    | RegisterController
    | Heartbeat
    | AlterPartition
    | AlterReassignments
    | ListReassignments
    | AlterConfigs
    | AlterClientQuotas
    | CreateAcls
    | RemoveAcls
    | AlterScramCredentials
    | CreateToken
    | RenewToken
    | ExpireToken
    | RemoveExpiredTokens
    | ElectLeaders
    | BalanceLeaders
    | ElectPreferred
    | ElectUnclean
    | ElectOnline
    | DrainBroker
    | ReleaseBroker
    | FenceBroker
    | UnfenceBroker
    | UnregisterBroker
    | UnregisterController
    | ExpireSessions
)
