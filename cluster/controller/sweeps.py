"""Passes over all partitions in slices, one command of the controller per slice.

A failed broker can lead thousands of partitions. The decision to fence it would then block the event loop for as long
as an election takes that many times. Before such a decision, a *drain* moves the leaders of the broker and its ISR
memberships in slices. The command that needs the drain waits, and is decided again at its end, with few partitions
left. Kafka also writes the changes of partitions in several batches, and the record of the broker last. Decision 0080
has the reasons.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from odradek.cluster.controller.commands import DrainBroker, ElectOnline, ElectPreferred, ReleaseBroker
from odradek.cluster.controller.cursor import Cursor
from odradek.cluster.controller.leaders import changes_of, is_affected
from odradek.cluster.controller.state import ControllerResult
from odradek.cluster.metadata.records import BrokerRegistrationChangeRecord
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shard import RetryAfter, Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.cluster.controller.removal import Removal
    from odradek.cluster.controller.state import ControllerState
    from odradek.cluster.metadata.image import BrokerImage, PartitionImage, TopicImage
    from odradek.cluster.metadata.records import MetadataRecord
    from odradek.runtime.shard import SoftChange

CHANGES_PER_SLICE: Final = 200
"""Partitions whose leader or ISR one decision about a broker changes. An election takes about 40 µs.

A broker with fewer partitions is fenced, unfenced or removed in one decision.
"""
CHECKS_PER_SLICE: Final = 5_000
"""Partitions that one slice of a pass over all partitions visits (about 1 ms)."""
RELEASE_MS: Final = 1_000
"""Milliseconds from the end of a drain to the end of its effect, if no command removes the broker."""
STOP_TOGETHER_MS: Final = 100
"""Milliseconds from the request for a controlled shutdown to the drain. Brokers that stop together request it in this
time, and need no drain."""
ELECT_ONLINE: Final = "ElectOnline"
ENTER_SHUTDOWN: Final = 1


def drained_first(
    state: ControllerState, broker_id: int, removal: Removal, *, stops: bool = False
) -> ControllerResult[Any] | None:
    """Return a result that makes the command wait for a drain of the broker.

    None: the broker has few partitions, so that the command can be decided now. Its soft changes have `released`.
    `stops`: the broker has requested a controlled shutdown. Its drain ends early if no broker stays.
    """
    retry = RetryAfter(_key(broker_id), Refusal(ErrorCode.REQUEST_TIMED_OUT))
    if state.draining.get(broker_id) is False:
        return ControllerResult(retry)
    matches = is_affected(state, broker_id, removal)
    affected = (each for topic in state.image.topics.values() for each in topic.partitions.values() if matches(each))
    if next(islice(affected, CHANGES_PER_SLICE, None), None) is None:
        return None
    command = DrainBroker(broker_id, removal, start(state), stops)
    begin = partial(state.draining.__setitem__, broker_id, False)
    timer = Timer(_key(broker_id), command=command, delay_ms=STOP_TOGETHER_MS if stops else 0)
    return ControllerResult(retry, timers=(timer,), soft=(begin,))


def all_stop(state: ControllerState) -> bool:
    """Return True if each broker is fenced or stops: no broker stays that can lead."""
    return all(broker.fenced or _is_stopping(state, broker) for broker in state.image.brokers.values())


def _is_stopping(state: ControllerState, broker: BrokerImage) -> bool:
    """Return True if this incarnation of the broker has requested a controlled shutdown."""
    return broker.in_controlled_shutdown or state.stopping.get(broker.broker_id) == broker.epoch


def entered_shutdown(broker: BrokerImage) -> BrokerRegistrationChangeRecord:
    """Return the record of the beginning of a controlled shutdown."""
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=ENTER_SHUTDOWN
    )


def released(state: ControllerState, broker_id: int) -> SoftChange:
    """Return the end of the drain of a broker, as a soft change."""
    return partial(state.draining.pop, broker_id, None)


def drain_broker(state: ControllerState, command: DrainBroker) -> ControllerResult[None]:
    """Move some leaders and ISR memberships away from a broker. At the end, wake the commands that wait for it."""
    broker_id, removal = command.broker_id, command.removal
    if command.stops and all_stop(state):
        leaving = [broker for broker in state.image.brokers.values() if broker.is_active]
        return _drained(state, tuple(state.draining), tuple(map(entered_shutdown, leaving)))
    found, cursor = visit(state, command.cursor, is_affected(state, broker_id, removal))
    records = changes_of(state, found, removal=removal, broker_id=broker_id)
    if cursor is not None:
        following = replace(command, cursor=cursor)
        return ControllerResult(None, tuple(records), timers=(now_timer(_key(broker_id), following),))
    return _drained(state, (broker_id,), tuple(records))


def _drained(
    state: ControllerState, broker_ids: tuple[int, ...], records: tuple[MetadataRecord, ...]
) -> ControllerResult[None]:
    """Return the end of the drains of these brokers, with the last records. It wakes the commands that wait for it."""
    # Each broker counts as inactive until a command has removed it. Otherwise:
    # 1. The drain has ended, and the command that waits is decided when the last slice is committed.
    # 2. Meanwhile, the broker is elected again for partitions that no other broker can lead.
    # 3. The command needs another drain.
    complete = partial(state.draining.update, dict.fromkeys(broker_ids, True))
    keys = tuple(_key(broker_id) for broker_id in broker_ids)
    timers = tuple(
        Timer(_key(broker_id), command=ReleaseBroker(broker_id), delay_ms=RELEASE_MS) for broker_id in broker_ids
    )
    return ControllerResult(None, records, soft=(complete,), timers=timers, keys=keys)


def release_broker(state: ControllerState, command: ReleaseBroker) -> ControllerResult[None]:
    """Let a drained broker lead again, if no command has removed it: the reason of the drain has passed."""
    if not state.draining.get(command.broker_id):
        return ControllerResult(None)
    return ControllerResult(None, soft=(released(state, command.broker_id),), timers=(elect_online_now(state),))


def first_elections(state: ControllerState, added: int) -> tuple[list[MetadataRecord], tuple[Timer, ...]]:
    """Elect broker `added`, which becomes active, for partitions without a leader.

    Return the elections of one slice, and the timer of a pass over the partitions that remain.
    """
    found, remaining = visit(state, start(state), lambda partition: not partition.has_leader)
    timers = () if remaining is None else (now_timer(ELECT_ONLINE, ElectOnline(remaining)),)
    return changes_of(state, found, added=added), timers


def elect_online(state: ControllerState, command: ElectOnline) -> ControllerResult[None]:
    """Elect active brokers for some of the partitions without a leader."""
    cursor = command.cursor or start(state)
    found, following = visit(state, cursor, lambda partition: not partition.has_leader)
    records = changes_of(state, found)
    timers = () if following is None else (now_timer(ELECT_ONLINE, ElectOnline(following)),)
    return ControllerResult(None, tuple(records), timers=timers)


def elect_online_now(state: ControllerState) -> Timer:
    """Return a timer that starts a pass over the partitions without a leader. It replaces one that is under way."""
    return now_timer(ELECT_ONLINE, ElectOnline(start(state)))


def visit(
    state: ControllerState, cursor: Cursor, matches: Callable[[PartitionImage], bool]
) -> tuple[list[tuple[TopicImage, PartitionImage]], Cursor | None]:
    """Return the next partitions that match, and the cursor after them; None at the end of the pass."""
    found: list[tuple[TopicImage, PartitionImage]] = []
    checks = 0
    for number in range(cursor.topic, len(cursor.topics)):
        topic = state.image.topic_by_id(cursor.topics[number])
        checks += 1
        if topic is None:
            continue
        first = cursor.partition if number == cursor.topic else 0
        for place, partition in enumerate(islice(topic.partitions.values(), first, None), first):
            if len(found) >= CHANGES_PER_SLICE or checks >= CHECKS_PER_SLICE:
                return found, Cursor(cursor.topics, number, place)
            checks += 1
            if matches(partition):
                found.append((topic, partition))
    return found, None


def start(state: ControllerState) -> Cursor:
    """Return the start of a pass over the topics that exist now."""
    return Cursor(tuple(state.image.topics_by_id))


def _key(broker_id: int) -> tuple[str, int]:
    return "drain", broker_id


def now_timer(key: object, command: DrainBroker | ElectOnline | ElectPreferred) -> Timer:
    return Timer(key, command=command, delay_ms=0)
