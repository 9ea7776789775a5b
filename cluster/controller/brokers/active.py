"""Fencing and unfencing of brokers, broker sessions, and unregistration (KIP-631)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.cluster.controller.leaders import holds_any, lost_replicas, remove_broker
from odradek.cluster.controller.removal import Removal
from odradek.cluster.controller.state import ControllerResult, ControllerState, Session
from odradek.cluster.controller.sweeps import drained_first, first_elections, released
from odradek.cluster.metadata.records import BrokerRegistrationChangeRecord, UnregisterBrokerRecord
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from odradek.cluster.controller.commands import ExpireSessions, FenceBroker, UnfenceBroker, UnregisterBroker
    from odradek.cluster.metadata.image import BrokerImage
    from odradek.runtime.shard import SoftChange

R = TypeVar("R")

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
    """Fence a broker. The next registration of this broker id does not wait for the end of the session.

    A broker that has stopped with all others is not fenced. Its next registration comes soon, and keeps its partitions.
    If it does not come, the session ends.
    """
    broker = _registered(state, command.broker_id)
    if command.broker_epoch is not None:
        check_broker_epoch(state, command.broker_id, command.broker_epoch)
    if broker.fenced or (broker.in_controlled_shutdown and holds_any(state, broker.broker_id)):
        return ControllerResult(None)
    return fence(state, broker, None)


def unfence_broker(state: ControllerState, command: UnfenceBroker) -> ControllerResult[None]:
    broker = _registered(state, command.broker_id)
    return unfence(state, broker, None) if broker.fenced else ControllerResult(None)


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
            return fence(state, broker, broker.broker_id, soft)
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
    drain = drained_first(state, broker.broker_id, Removal.INACTIVE)
    if drain is not None:
        return drain
    records = (*remove_broker(state, broker.broker_id, Removal.INACTIVE), record)
    soft = (partial(state.sessions.pop, broker.broker_id, None), released(state, broker.broker_id))
    return ControllerResult(None, records, soft=soft)


def _registered(state: ControllerState, broker_id: int) -> BrokerImage:
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    return broker


def fence(
    state: ControllerState, broker: BrokerImage, reply: R, soft: tuple[SoftChange, ...] = (), *, stops: bool = False
) -> ControllerResult[R]:
    """Fence a broker in the same batch as the changes of its last partitions, so that no fenced broker leads.

    `stops`: the broker has requested a controlled shutdown.
    """
    drain = drained_first(state, broker.broker_id, Removal.INACTIVE, stops=stops)
    if drain is not None:
        return replace(drain, soft=(*drain.soft, *soft))
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=FENCE)
    records = (*remove_broker(state, broker.broker_id, Removal.INACTIVE), change)
    return ControllerResult(reply, records, soft=(*soft, released(state, broker.broker_id)))


def unfence(
    state: ControllerState, broker: BrokerImage, reply: R, soft: tuple[SoftChange, ...] = ()
) -> ControllerResult[R]:
    """Let a broker lead again. The first partitions without a leader are in the same batch."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=UNFENCE)
    elections, timers = first_elections(state, broker.broker_id)
    lost = lost_replicas(state, broker.broker_id)
    notices = () if lost is None else (lost,)
    return ControllerResult(reply, (change, *elections), notices, soft=soft, timers=timers)
