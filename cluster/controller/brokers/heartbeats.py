"""Heartbeats of brokers: unfencing and controlled shutdown (KIP-631)."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from odradek.cluster.controller.brokers.active import check_broker_epoch, fence, unfence
from odradek.cluster.controller.leaders import holds_any, leads_any, remove_broker
from odradek.cluster.controller.messages.brokers import BrokerHeartbeat, HeartbeatReply
from odradek.cluster.controller.removal import Removal
from odradek.cluster.controller.state import ControllerResult, ControllerState, Session
from odradek.cluster.controller.sweeps import all_stop, drained_first, entered_shutdown, released

if TYPE_CHECKING:
    from odradek.cluster.controller.commands import Heartbeat
    from odradek.cluster.metadata.image import BrokerImage
    from odradek.runtime.shard import SoftChange


class _Next(Enum):
    FENCED = "fenced"
    ACTIVE = "active"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


def heartbeat(state: ControllerState, command: Heartbeat) -> ControllerResult[HeartbeatReply]:
    beat = command.heartbeat
    broker = check_broker_epoch(state, beat.broker_id, beat.broker_epoch)
    session = Session(beat.broker_epoch, command.at_ms, beat.metadata_offset)
    following = _next_state(state, broker, beat)
    soft: tuple[SoftChange, ...] = (partial(state.sessions.__setitem__, beat.broker_id, session),)
    if beat.want_shut_down:
        soft = (*soft, partial(state.stopping.__setitem__, beat.broker_id, broker.epoch))
        if broker.in_controlled_shutdown and all_stop(state) and holds_any(state, beat.broker_id):
            # It stops with all others, and keeps its partitions (`registration.register_broker`).
            stop = HeartbeatReply(is_caught_up=True, is_fenced=False, should_shut_down=True)
            return ControllerResult(stop, soft=soft)
    reply = HeartbeatReply(
        is_caught_up=beat.metadata_offset >= broker.epoch,
        is_fenced=following in {_Next.FENCED, _Next.SHUTDOWN_NOW},
        should_shut_down=following is _Next.SHUTDOWN_NOW,
    )
    if following in {_Next.FENCED, _Next.SHUTDOWN_NOW} and not broker.fenced:
        return fence(state, broker, reply, soft, stops=beat.want_shut_down)
    if following is _Next.ACTIVE and (broker.fenced or broker.lineage):
        return unfence(state, broker, reply, soft)
    if following is _Next.CONTROLLED_SHUTDOWN and not broker.in_controlled_shutdown:
        drain = drained_first(state, broker.broker_id, Removal.INACTIVE, stops=True)
        if drain is not None:
            return replace(drain, soft=(*drain.soft, *soft))
        return ControllerResult(
            reply,
            (entered_shutdown(broker), *remove_broker(state, broker.broker_id, Removal.INACTIVE)),
            soft=(*soft, released(state, broker.broker_id)),
        )
    return ControllerResult(reply, soft=soft)


def _next_state(state: ControllerState, broker: BrokerImage, beat: BrokerHeartbeat) -> _Next:
    if broker.fenced:
        if beat.want_shut_down:
            return _Next.SHUTDOWN_NOW
        # A broker that has started a controlled shutdown becomes active again only with a new registration.
        waits = beat.want_fence or broker.in_controlled_shutdown or beat.metadata_offset < broker.epoch
        return _Next.FENCED if waits else _Next.ACTIVE
    if broker.in_controlled_shutdown:
        if leads_any(state, broker.broker_id) or not _all_know_of_shutdown(state, broker, beat):
            return _Next.CONTROLLED_SHUTDOWN
        return _Next.SHUTDOWN_NOW
    if beat.want_fence and (beat.want_shut_down or _another_is_active(state, broker)):
        return _Next.SHUTDOWN_NOW if beat.want_shut_down else _Next.FENCED
    if beat.want_shut_down:
        # A drained broker also waits until all brokers know the new leaders.
        leads = broker.broker_id in state.draining or leads_any(state, broker.broker_id)
        return _Next.CONTROLLED_SHUTDOWN if leads else _Next.SHUTDOWN_NOW
    return _Next.ACTIVE


def _another_is_active(state: ControllerState, broker: BrokerImage) -> bool:
    """Return True if another broker can serve. The last one is not fenced on request: it serves deletions."""
    return any(state.is_active(broker_id) for broker_id in state.image.brokers if broker_id != broker.broker_id)


def _all_know_of_shutdown(state: ControllerState, leaving: BrokerImage, beat: BrokerHeartbeat) -> bool:
    """Return True if every active broker has applied the leader changes: none refers a client to the former leader."""
    offset = state.shutdown_offsets.get(leaving.broker_id, -1)
    for broker in state.image.active_brokers():
        if broker.broker_id == beat.broker_id:
            known = beat.metadata_offset
        else:
            session = state.sessions.get(broker.broker_id)
            known = -1 if session is None else session.metadata_offset
        if known < offset:
            return False
    return True
