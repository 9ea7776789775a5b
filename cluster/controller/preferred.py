"""Elections of preferred leaders soon after a broker has returned.

After a restart of all brokers, the first broker leads every partition until the others have caught up. Apache Kafka
moves the leaders back by a periodic check only (`leader.imbalance.check.interval.seconds`, five minutes). The
controller elects a broker that joined the ISRs of partitions that prefer it after a short delay, in slices.

The periodic check remains for all other causes, for example a preferred leader that stayed in the ISR.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.cluster.controller.commands import ElectPreferred
from odradek.cluster.controller.election import Election
from odradek.cluster.controller.leaders import changes_of, partitions_with
from odradek.cluster.controller.state import ControllerResult
from odradek.cluster.controller.sweeps import now_timer, start, visit
from odradek.runtime.shard import Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from odradek.cluster.controller.state import ControllerState
    from odradek.cluster.metadata.image import PartitionImage
    from odradek.runtime.shard import SoftChange

PREFERRED_ELECTION_DELAY_MS: Final = 5_000
"""Milliseconds from the last join of an ISR to the elections of the preferred leader.

A broker that returns joins the ISRs of its partitions one after the other, and is busy meanwhile: each join starts the
delay again. Each election doubles the delay of its broker, up to the interval of the periodic check, which resets it.
So a broker that fails again and again does not move its leaders each time.
"""


def elections_after_joins(state: ControllerState, broker_ids: Iterable[int]) -> tuple[Timer, ...]:
    """Return the timers of the elections of brokers that joined the ISRs of partitions that prefer them."""
    interval_ms = state.config.leader_balance_interval_ms
    if interval_ms is None:
        return ()
    return tuple(
        Timer(
            _key(broker_id),
            command=ElectPreferred(broker_id),
            delay_ms=min(interval_ms, PREFERRED_ELECTION_DELAY_MS << state.preferred_elections[broker_id]),
        )
        for broker_id in dict.fromkeys(broker_ids)
    )


def elections_after_load(state: ControllerState) -> tuple[Timer, ...]:
    """Return the timers of the elections that the former controller may not have made."""
    waiting = partitions_with(state, lambda partition: _is_due(partition, partition.replicas[0]))
    return elections_after_joins(state, (partition.replicas[0] for _, partition in waiting))


def elect_preferred(state: ControllerState, command: ElectPreferred) -> ControllerResult[None]:
    """Elect the broker for some of the partitions that prefer it, if it is in their ISRs.

    Return no record if the broker is inactive, or within `leader.imbalance.per.broker.percentage`.
    """
    broker_id, cursor = command.broker_id, command.cursor
    if not state.is_active(broker_id) or (cursor is None and not _exceeds_limit(state, broker_id)):
        return ControllerResult(None)
    found, following = visit(state, cursor or start(state), _is_due_for(broker_id))
    records = changes_of(state, found, election=Election.PREFERRED)
    counted: tuple[SoftChange, ...] = ()
    if cursor is None and records:
        counted = (partial(state.preferred_elections.update, (broker_id,)),)
    timers = () if following is None else (now_timer(_key(broker_id), replace(command, cursor=following)),)
    return ControllerResult(None, tuple(records), soft=counted, timers=timers)


def joins_as_preferred(before: PartitionImage, after: PartitionImage) -> bool:
    """Return True if a change of the ISR added the preferred leader, and another replica leads."""
    preferred = after.replicas[0]
    return _is_due(after, preferred) and (preferred not in before.isr or preferred != before.replicas[0])


def _is_due(partition: PartitionImage, broker_id: int) -> bool:
    return partition.replicas[0] == broker_id != partition.leader and broker_id in partition.isr


def _is_due_for(broker_id: int) -> Callable[[PartitionImage], bool]:
    return lambda partition: _is_due(partition, broker_id)


def _exceeds_limit(state: ControllerState, broker_id: int) -> bool:
    preferring = [each for _, each in partitions_with(state, lambda partition: partition.replicas[0] == broker_id)]
    away = sum(partition.leader != broker_id for partition in preferring)
    return away * 100 > len(preferring) * state.config.leader_imbalance_percentage


def _key(broker_id: int) -> tuple[str, int]:
    return "preferred leaders", broker_id
