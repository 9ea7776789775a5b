"""Brokers: registration, heartbeats, fencing (KIP-631). The broker epoch is the offset at which the registration began."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from cluster.controller.leaders import add_broker, leads_any, remove_broker
from cluster.controller.port import BrokerHeartbeat, BrokerRegistration, HeartbeatReply
from cluster.controller.state import ControllerState, Session, Verdict
from cluster.image import RESERVED_IDS_MAX, BrokerImage, VersionRange
from cluster.records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from cluster.controller.commands import (
        ExpireSessions,
        FenceBroker,
        Heartbeat,
        RegisterBroker,
        RegisterController,
        UnfenceBroker,
    )

FENCE: Final = 1
UNFENCE: Final = -1
ENTER_SHUTDOWN: Final = 1


def check_broker_epoch(state: ControllerState, broker_id: int, broker_epoch: int) -> BrokerImage:
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        raise Refusal(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        )
    return broker


# ---- registration ---------------------------------------------------------------------------------------------------


def register_broker(state: ControllerState, command: RegisterBroker) -> Verdict[int]:
    """A new incarnation starts fenced, with a new epoch, and first gives up what the one before it led."""
    registration = command.registration
    existing = state.image.brokers.get(registration.broker_id)
    _check_registration(state, registration, existing, command.at_ms)
    records: list[MetadataRecord] = []
    same = existing is not None and existing.incarnation_id == registration.incarnation_id
    epoch = existing.epoch if existing is not None and same else state.next_offset()
    fenced = existing.fenced if existing is not None and same else True
    if existing is not None and not same:
        records += remove_broker(state, registration.broker_id)
    records.append(
        RegisterBrokerRecord(
            broker_id=registration.broker_id,
            incarnation_id=registration.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in registration.endpoints
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in registration.features.items()
            ],
            rack=registration.rack,
            fenced=fenced,
            log_dirs=sorted(registration.directories),
        )
    )
    state.sessions[registration.broker_id] = Session(epoch, command.at_ms)
    return Verdict(epoch, tuple(records))


def _check_registration(
    state: ControllerState, registration: BrokerRegistration, existing: BrokerImage | None, at_ms: int
) -> None:
    cluster_id = state.config.cluster_id
    if registration.cluster_id != cluster_id:
        raise Refusal(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {registration.cluster_id}",
        )
    if existing is not None and existing.incarnation_id != registration.incarnation_id:
        _check_replaceable(state, existing, at_ms)
    directories = registration.directories
    if not directories:
        raise Refusal(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if any(directory.int <= RESERVED_IDS_MAX for directory in directories):
        raise Refusal(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(dict.fromkeys(directories)) != len(directories):
        raise Refusal(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for other in state.image.brokers.values():
        shared = [d for d in directories if other.broker_id != registration.broker_id and d in other.directories]
        if shared:
            raise Refusal(
                ErrorCode.INVALID_REGISTRATION,
                f"Broker {other.broker_id} is already registered with directory {shared[0]}",
            )
    for name, level in state.image.features.items():
        supported = registration.features.get(name, VersionRange(0, 0))
        if not supported.min <= level <= supported.max:
            raise Refusal(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. The broker"
                f" wants a version between {supported.min} and {supported.max}, inclusive.",
            )


def _check_replaceable(state: ControllerState, existing: BrokerImage, at_ms: int) -> None:
    """Another process under the same id may still live, unless its session is over, it is leaving, or it was this one."""
    if existing.broker_id == state.config.node_id or existing.in_controlled_shutdown:
        return
    session = state.sessions.get(existing.broker_id)
    if session is not None and at_ms - session.last_contact_ms <= state.config.session_timeout_ms:
        raise Refusal(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should"
            " self-resolve once the heartbeat manager expires the broker's session.",
        )


def register_controller(state: ControllerState, command: RegisterController) -> Verdict[None]:
    record = RegisterControllerRecord(
        controller_id=command.controller_id,
        incarnation_id=command.incarnation_id,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in command.endpoints
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
            for name, levels in command.features.items()
        ],
    )
    return Verdict(None, (record,))


# ---- heartbeats -----------------------------------------------------------------------------------------------------


class _Next(Enum):
    FENCED = "fenced"
    ACTIVE = "active"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


def heartbeat(state: ControllerState, command: Heartbeat) -> Verdict[HeartbeatReply]:
    beat = command.heartbeat
    broker = check_broker_epoch(state, beat.broker_id, beat.broker_epoch)
    state.sessions[beat.broker_id] = Session(beat.broker_epoch, command.at_ms, beat.metadata_offset)
    following = _next_state(state, broker, beat)
    records: list[MetadataRecord] = []
    if following in {_Next.FENCED, _Next.SHUTDOWN_NOW} and not broker.fenced:
        records = _fence(state, broker)
    elif following is _Next.ACTIVE and broker.fenced:
        records = _unfence(state, broker)
    elif following is _Next.CONTROLLED_SHUTDOWN and not broker.in_controlled_shutdown:
        change = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=ENTER_SHUTDOWN
        )
        records = [change, *remove_broker(state, broker.broker_id)]
    reply = HeartbeatReply(
        is_caught_up=beat.metadata_offset >= broker.epoch,
        is_fenced=following in {_Next.FENCED, _Next.SHUTDOWN_NOW},
        should_shut_down=following is _Next.SHUTDOWN_NOW,
    )
    return Verdict(reply, tuple(records))


def _next_state(state: ControllerState, broker: BrokerImage, beat: BrokerHeartbeat) -> _Next:
    if broker.fenced:
        if beat.want_shut_down:
            return _Next.SHUTDOWN_NOW
        caught_up = beat.metadata_offset >= broker.epoch
        return _Next.ACTIVE if caught_up and not beat.want_fence else _Next.FENCED
    if broker.in_controlled_shutdown:
        if leads_any(state, broker.broker_id) or not _all_know_of_shutdown(state, broker):
            return _Next.CONTROLLED_SHUTDOWN
        return _Next.SHUTDOWN_NOW
    if beat.want_fence:
        return _Next.SHUTDOWN_NOW if beat.want_shut_down else _Next.FENCED
    if beat.want_shut_down:
        return _Next.CONTROLLED_SHUTDOWN if leads_any(state, broker.broker_id) else _Next.SHUTDOWN_NOW
    return _Next.ACTIVE


def _all_know_of_shutdown(state: ControllerState, leaving: BrokerImage) -> bool:
    """Nobody shall be sent to a leader that is gone: every active broker has seen the moves."""
    offset = state.shutdown_offsets.get(leaving.broker_id, -1)
    for broker in state.image.active_brokers():
        session = state.sessions.get(broker.broker_id)
        if session is None or session.metadata_offset < offset:
            return False
    return True


# ---- fencing --------------------------------------------------------------------------------------------------------


def fence_broker(state: ControllerState, command: FenceBroker) -> Verdict[None]:
    broker = _registered(state, command.broker_id)
    return Verdict(None, () if broker.fenced else tuple(_fence(state, broker)))


def unfence_broker(state: ControllerState, command: UnfenceBroker) -> Verdict[None]:
    broker = _registered(state, command.broker_id)
    return Verdict(None, tuple(_unfence(state, broker)) if broker.fenced else ())


def expire_sessions(state: ControllerState, command: ExpireSessions) -> Verdict[int | None]:
    """The id of the broker that was fenced; one a command, since each fencing is decided on the one before it.

    The controller's own broker has no session: it lives as long as its controller.
    """
    for broker in state.image.brokers.values():
        if broker.fenced or broker.broker_id == state.config.node_id:
            continue
        # A controller that has just begun to lead gives everybody a full session.
        session = state.sessions.setdefault(broker.broker_id, Session(broker.epoch, command.at_ms))
        if command.at_ms - session.last_contact_ms > state.config.session_timeout_ms:
            return Verdict(broker.broker_id, tuple(_fence(state, broker)))
    return Verdict(None)


def _registered(state: ControllerState, broker_id: int) -> BrokerImage:
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    return broker


def _fence(state: ControllerState, broker: BrokerImage) -> list[MetadataRecord]:
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=FENCE)
    return [*remove_broker(state, broker.broker_id), change]


def _unfence(state: ControllerState, broker: BrokerImage) -> list[MetadataRecord]:
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=UNFENCE)
    return [change, *add_broker(state, broker.broker_id)]
