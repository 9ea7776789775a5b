"""Registrations of brokers (KIP-631, KIP-858, KIP-966) and of controllers (KIP-919)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.cluster.controller.leaders import could_lead, new_coordinator_epochs, remove_broker
from odradek.cluster.controller.removal import Removal
from odradek.cluster.controller.state import ControllerResult, ControllerState, Session
from odradek.cluster.controller.sweeps import drained_first, released
from odradek.cluster.metadata.image import (
    METADATA_VERSION,
    RESERVED_IDS_MAX,
    BrokerImage,
    ControllerImage,
    VersionRange,
)
from odradek.cluster.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    ControllerEndpoint,
    ControllerFeature,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterControllerRecord,
)
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from odradek.cluster.controller.commands import RegisterBroker, RegisterController, UnregisterController
    from odradek.cluster.controller.messages.brokers import BrokerRegistration

UNREGISTER_CONTROLLER_LEVEL_MIN: Final = 33
"""First `metadata.version` with a record that removes the registration of a controller (4.4-IV2)."""


def register_broker(state: ControllerState, command: RegisterBroker) -> ControllerResult[int]:
    """Return the broker epoch: the offset of the registration record.

    A new incarnation starts with a new epoch. It is fenced, and leaves the ISRs that the previous incarnation was in,
    unless it keeps its partitions.
    """
    registration = command.registration
    existing = state.image.brokers.get(registration.broker_id)
    _check(state, registration, existing, command.at_ms)
    if existing is not None and existing.incarnation_id == registration.incarnation_id:
        record = _record(registration, existing.epoch)
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        records: list[MetadataRecord] = [record]
    else:
        record = _record(registration, state.next_offset())
        if _keeps_partitions(state, registration, existing):
            record.fenced = False
            records = [record, *new_coordinator_epochs(state, registration.broker_id)]
        else:
            clean = _left_cleanly(registration, existing) or not state.elr_enabled
            removal = Removal.INACTIVE if clean else Removal.UNCLEAN
            drain = drained_first(state, registration.broker_id, removal)
            if drain is not None:
                return drain
            records = [*remove_broker(state, registration.broker_id, removal), record]
    session = Session(record.broker_epoch, command.at_ms)
    begin = partial(state.sessions.__setitem__, registration.broker_id, session)
    soft = (begin, released(state, registration.broker_id))
    return ControllerResult(record.broker_epoch, tuple(records), soft=soft)


def _keeps_partitions(state: ControllerState, registration: BrokerRegistration, existing: BrokerImage | None) -> bool:
    """Return True if a broker returns after it stopped together with all other brokers.

    Its partitions still have it as leader or in the ISR. It leads them again in the same leader epoch, since no
    follower has records that it lacks. Apache Kafka first removes it from all ISRs and elects other leaders. After a
    stop of all brokers, those changes of all partitions would take most of the start.

    A broker whose process failed does not keep its partitions, although its logs are usually complete. Recovery may
    have removed a damaged last batch that a follower has. Only a new leader epoch lets that follower find the
    difference.
    """
    if existing is None or existing.fenced or registration.broker_id in state.draining:
        return False
    if could_lead(state, registration.broker_id):
        return False  # as a fenced broker, it gets these partitions when it is unfenced
    stopped = existing.in_controlled_shutdown or bool(existing.lineage)  # the latter: no heartbeat yet
    return stopped and _left_cleanly(registration, existing)


def _left_cleanly(registration: BrokerRegistration, existing: BrokerImage | None) -> bool:
    """Return True if this broker has all records that its previous incarnation had.

    The clean-shutdown marker of the broker has the epoch of the incarnation that stopped cleanly. That may be an
    incarnation before the previous one, if the previous one was killed before it was unfenced: it has acknowledged
    nothing.
    """
    return (
        existing is not None
        and registration.previous_broker_epoch in {existing.epoch, *existing.lineage}
        and all(directory in registration.directories for directory in existing.directories)
    )


def _record(registration: BrokerRegistration, epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
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
        fenced=True,
        log_dirs=sorted(registration.directories),
    )


# ---- checks ---------------------------------------------------------------------------------------------------------


def _check(state: ControllerState, registration: BrokerRegistration, existing: BrokerImage | None, at_ms: int) -> None:
    cluster_id = state.config.cluster_id
    if registration.cluster_id != cluster_id:
        raise Refusal(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {registration.cluster_id}",
        )
    if existing is not None and existing.incarnation_id != registration.incarnation_id:
        _check_replaceable(state, registration, existing, at_ms)
    _check_directories(state, registration)
    for name, level in state.image.features.items():
        supported = registration.features.get(name, VersionRange(0, 0))
        if not supported.min <= level <= supported.max:
            raise Refusal(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}."
                f" The broker wants a version between {supported.min} and {supported.max}, inclusive.",
            )


def _check_replaceable(
    state: ControllerState, registration: BrokerRegistration, existing: BrokerImage, at_ms: int
) -> None:
    """Raise Refusal(DUPLICATE_BROKER_REGISTRATION) if another process may still run with the same broker id.

    The registered process does not run any more if it is fenced or in a controlled shutdown, or if it was the process
    of this controller. It does not run either if the new one has its directories, which one process at a time can lock,
    and its endpoints. A broker that was killed can therefore register again before its session is over.
    """
    if existing.broker_id == state.config.node_id or not existing.is_active:
        return
    if existing.directories == tuple(sorted(registration.directories)) and existing.endpoints == registration.endpoints:
        return
    session = state.sessions.get(existing.broker_id)
    if session is not None and at_ms - session.last_contact_ms <= state.config.session_timeout_ms:
        raise Refusal(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should"
            " self-resolve once the heartbeat manager expires the broker's session.",
        )


def _check_directories(state: ControllerState, registration: BrokerRegistration) -> None:
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


# ---- controllers ----------------------------------------------------------------------------------------------------


def register_controller(state: ControllerState, command: RegisterController) -> ControllerResult[None]:
    """Register a controller. A repeated registration writes no record."""
    new = command.registration
    known = state.image.controllers.get(new.controller_id)
    if known == ControllerImage(new.controller_id, new.incarnation_id, new.endpoints, new.features):
        return ControllerResult(None)
    record = RegisterControllerRecord(
        controller_id=new.controller_id,
        incarnation_id=new.incarnation_id,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in new.endpoints
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
            for name, levels in new.features.items()
        ],
    )
    return ControllerResult(None, (record,))


def unregister_controller(state: ControllerState, command: UnregisterController) -> ControllerResult[None]:
    """Remove the registration of a controller that does not return (KIP-1312)."""
    controller_id = command.controller_id
    if controller_id == state.config.node_id:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active.")
    if state.image.feature(METADATA_VERSION) < UNREGISTER_CONTROLLER_LEVEL_MIN:
        raise Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
        )
    if controller_id not in state.image.controllers:
        raise Refusal(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"Controller ID {controller_id} is not currently registered."
        )
    return ControllerResult(None, (UnregisterControllerRecord(controller_id=controller_id),))
