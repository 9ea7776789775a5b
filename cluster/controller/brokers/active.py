"""Fencing and unfencing of brokers, broker sessions, and unregistration (KIP-631)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.cluster.controller.leaders import add_broker, lost_replicas, remove_broker, remove_unregistered
from odradek.cluster.controller.state import ControllerResult, ControllerState, Notice, Session
from odradek.cluster.metadata.records import BrokerRegistrationChangeRecord, UnregisterBrokerRecord
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from odradek.cluster.controller.commands import ExpireSessions, FenceBroker, UnfenceBroker, UnregisterBroker
    from odradek.cluster.metadata.image import BrokerImage
    from odradek.cluster.metadata.records import MetadataRecord
    from odradek.runtime.shard import SoftChange

FENCE: Final = 1
UNFENCE: Final = -1


def check_broker_epoch(state: ControllerState, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Return the registration. Raise Refusal(BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH) if it is another one."""
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        raise Refusal(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        )
    return broker


def fence_broker(state: ControllerState, command: FenceBroker) -> ControllerResult[None]:
    """Fence a broker. The next registration of this broker id does not wait for the end of the session."""
    broker = _registered(state, command.broker_id)
    if command.broker_epoch is not None:
        check_broker_epoch(state, command.broker_id, command.broker_epoch)
    return ControllerResult(None, () if broker.fenced else tuple(fence(state, broker)))


def unfence_broker(state: ControllerState, command: UnfenceBroker) -> ControllerResult[None]:
    broker = _registered(state, command.broker_id)
    if not broker.fenced:
        return ControllerResult(None)
    records, notices = unfence(state, broker)
    return ControllerResult(None, tuple(records), notices)


def expire_sessions(state: ControllerState, command: ExpireSessions) -> ControllerResult[int | None]:
    """Fence one broker whose session has expired, and return its id. Return None if no session has expired.

    One command fences one broker, because the next decision depends on its records. The broker of the controller's own
    node has no session: it runs as long as its controller.
    """
    begun: dict[int, Session] = {}
    soft = (partial(state.sessions.update, begun),)
    for broker in state.image.brokers.values():
        if broker.fenced or broker.broker_id == state.config.node_id:
            continue
        session = state.sessions.get(broker.broker_id)
        if session is None:
            begun[broker.broker_id] = Session(broker.epoch, command.at_ms)
        elif command.at_ms - session.last_contact_ms > state.config.session_timeout_ms:
            return ControllerResult(broker.broker_id, tuple(fence(state, broker)), soft=soft)
    return ControllerResult(None, soft=soft)


def begin_sessions(state: ControllerState, at_ms: int) -> tuple[SoftChange, ...]:
    """Start a full session for each active broker without one: a new controller has not received heartbeats yet."""
    begun = {
        broker.broker_id: Session(broker.epoch, at_ms)
        for broker in state.image.brokers.values()
        if not broker.fenced and broker.broker_id not in state.sessions
    }
    return (partial(state.sessions.update, begun),)


def unregister_broker(state: ControllerState, command: UnregisterBroker) -> ControllerResult[None]:
    """Remove the registration of a broker that does not return. A running broker registers again automatically."""
    broker = _registered(state, command.broker_id)
    record = UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch)
    records = (*remove_unregistered(state, broker.broker_id), record)
    return ControllerResult(None, records, soft=(partial(state.sessions.pop, broker.broker_id, None),))


def _registered(state: ControllerState, broker_id: int) -> BrokerImage:
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    return broker


def fence(state: ControllerState, broker: BrokerImage) -> list[MetadataRecord]:
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=FENCE)
    return [*remove_broker(state, broker.broker_id), change]


def unfence(state: ControllerState, broker: BrokerImage) -> tuple[list[MetadataRecord], tuple[Notice, ...]]:
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=UNFENCE)
    lost = lost_replicas(state, broker.broker_id)
    return [change, *add_broker(state, broker.broker_id)], () if lost is None else (lost,)
