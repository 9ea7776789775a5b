"""Requests and results for brokers and controllers: registration, heartbeats, producer id blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.frozen import frozen_dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from odradek.cluster.metadata.image import Endpoint, VersionRange

PRODUCER_ID_BLOCK_SIZE: Final = 1_000
"""Producer ids per block, as in Kafka."""


@frozen_dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker's request to be registered (BrokerRegistration v4).

    `previous_broker_epoch` is the epoch in the clean-shutdown marker. It is -1 if there is no marker.
    """

    broker_id: int
    cluster_id: str
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]
    directories: tuple[UUID, ...]
    rack: str | None = None
    previous_broker_epoch: int = -1


@frozen_dataclass(frozen=True, slots=True)
class BrokerHeartbeat:
    """A heartbeat (BrokerHeartbeat).

    `metadata_offset` is the last offset of the metadata log that the broker has applied.
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False


@frozen_dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The response to a heartbeat. `should_shut_down` completes a controlled shutdown."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@frozen_dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """A controller's request to be registered, with its endpoints (KIP-919)."""

    controller_id: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]


@frozen_dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """`length` producer ids, from `first` on."""

    first: int
    length: int = PRODUCER_ID_BLOCK_SIZE
