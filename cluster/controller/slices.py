"""Division of large requests into slices, which the controller decides one after the other.

One decision blocks the event loop of the active controller, and its records are one delta for each broker. A slice
bounds both. Each slice is decided, appended and applied before the next one is decided, so each decision still sees the
effects of all earlier ones. Items that depend on each other are in one slice: two items of one name, and all partitions
of one topic. Decision 0075 has the reasons.

A request that could need more than `RECORDS_PER_REQUEST_MAX` records is refused as a whole, as in Kafka.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

from odradek.cluster.controller import commands
from odradek.cluster.controller.configs import MIN_IN_SYNC
from odradek.cluster.controller.partitions.creation import PARTITIONS_PER_CALL_MAX, too_many_partitions
from odradek.cluster.controller.partitions.topics import requested_partitions
from odradek.cluster.metadata.image import RESOURCE_TOPIC, quota_entity
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from odradek.cluster.controller.messages.settings import ConfigChange, QuotaChange
    from odradek.cluster.controller.messages.topics import NewPartitions, NewTopic, TopicName
    from odradek.cluster.controller.state import ControllerState

RECORDS_PER_REQUEST_MAX: Final = 10_000
"""Maximum records of the metadata log per request: Kafka's `QuorumController.MAX_RECORDS_PER_USER_OP`.

A broker forwards no request that names more partitions, topics or resources.
"""
RECORDS_PER_SLICE: Final = 100
"""Records per slice that create or delete something. The decision, its records and the next image take up to 5 ms."""
PARTITIONS_PER_RECORD: Final = 4
"""Partitions of a deleted topic that take as long as one record: brokers end their terms."""
CHARACTERS_PER_RECORD: Final = 300
"""Characters of configuration values that take as long as one record: lists of many items are divided and checked."""
CHECKS_PER_SLICE: Final = 200
"""Partitions per slice of an election or a list. An election takes about 40 us, a check that it is not needed 9 us."""

T = TypeVar("T")


@frozen_dataclass(frozen=True, slots=True)
class Slice:
    """A part of a request, and the positions of its results among the results of the whole request.

    Without positions, the results follow those of the slices before it.
    """

    command: commands.Command
    positions: tuple[int, ...] | None = None


class Results(Enum):
    """The number of results of a decision."""

    PER_ITEM = "one for each item"
    PER_UNIQUE_ITEM = "one for each item that differs from the items before it"
    PER_KEY = "one for each key"


class Merged:
    """Results of the slices so far. A slice is added in a time that does not depend on the slices before it."""

    def __init__(self) -> None:
        self._following: list[Any] = []
        self._placed: dict[int, Any] = {}

    def add(self, part: Slice, results: Sequence[Any]) -> None:
        """Add the results of `part`. Either all slices of a request have positions, or none has."""
        if part.positions is None:
            self._following += results
        else:
            self._placed.update(zip(part.positions, results, strict=True))

    def ordered(self) -> tuple[Any, ...]:
        """Return the results in the order that a single decision has."""
        if not self._placed:
            return tuple(self._following)
        return tuple(self._placed[position] for position in sorted(self._placed))


def too_large() -> Refusal:
    """Return Kafka's refusal of a request that needs more than `RECORDS_PER_REQUEST_MAX` records."""
    return Refusal(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def slices_of(state: ControllerState, command: commands.Command) -> list[Slice]:
    """Return the slices that together do what `command` requests; one slice if it is small.

    Raise Refusal(POLICY_VIOLATION) if it requests too much.
    """
    divide = _DIVIDE.get(type(command))
    return [Slice(command)] if divide is None else divide(state, command)


def _create_topics(state: ControllerState, command: commands.CreateTopics) -> list[Slice]:
    def records(topic: NewTopic) -> int:
        return 1 + len(topic.configs) + requested_partitions(state, (topic,))

    if requested_partitions(state, command.topics) > PARTITIONS_PER_CALL_MAX:
        raise too_many_partitions()
    _check_records(sum(map(records, command.topics)))
    keys = [topic.name for topic in command.topics]
    return _divided(command, "topics", command.topics, keys, records, results=Results.PER_KEY)


def _create_partitions(state: ControllerState, command: commands.CreatePartitions) -> list[Slice]:
    def additional(topic: NewPartitions) -> int:
        existing = state.image.topic(topic.name)
        return 0 if existing is None else max(0, topic.count - len(existing.partitions))

    if sum(map(additional, command.topics)) > PARTITIONS_PER_CALL_MAX:
        raise too_many_partitions("additional partitions")
    _check_records(len(command.topics))
    keys = [topic.name for topic in command.topics]
    return _divided(
        command, "topics", command.topics, keys, lambda topic: max(1, additional(topic)), results=Results.PER_KEY
    )


def _delete_topics(state: ControllerState, command: commands.DeleteTopics) -> list[Slice]:
    def key(item: TopicName) -> Hashable:
        found = None if item.name is None else state.image.topic(item.name)
        return found.topic_id if found is not None else item.name or item.topic_id

    def work(item: TopicName) -> int:
        found = state.image.topic_by_id(item.topic_id) if item.name is None else state.image.topic(item.name)
        return 1 if found is None else 1 + len(found.partitions) // PARTITIONS_PER_RECORD

    _check_records(len(command.topics))
    keys = [key(item) for item in command.topics]
    return _divided(command, "topics", command.topics, keys, work, results=Results.PER_UNIQUE_ITEM)


def _alter_configs(state: ControllerState, command: commands.AlterConfigs) -> list[Slice]:
    def records(resource: ConfigChange) -> int:
        return max(1, len(resource.changes))

    def work(resource: ConfigChange) -> int:
        characters = sum(len(value or "") for _, _, value in resource.changes)
        total = records(resource) + characters // CHARACTERS_PER_RECORD
        if resource.kind == RESOURCE_TOPIC and any(name == MIN_IN_SYNC for name, _, _ in resource.changes):
            topic = state.image.topic(resource.name)  # each partition may get a record
            total += 0 if topic is None else len(topic.partitions)
        return total

    _check_records(sum(map(records, command.resources)))
    keys = [(resource.kind, resource.name) for resource in command.resources]
    return _divided(command, "resources", command.resources, keys, work)


def _alter_client_quotas(state: ControllerState, command: commands.AlterClientQuotas) -> list[Slice]:
    def records(change: QuotaChange) -> int:
        return max(1, len(change.changes))

    _check_records(sum(map(records, command.entities)))
    keys = [quota_entity(change.entity) for change in command.entities]
    return _divided(command, "entities", command.entities, keys, records)


def _create_acls(state: ControllerState, command: commands.CreateAcls) -> list[Slice]:
    _check_records(len(command.acls))
    return _divided(command, "acls", command.acls, command.acls, lambda _: 1)


def _remove_acls(state: ControllerState, command: commands.RemoveAcls) -> list[Slice]:
    return _divided(command, "ids", command.ids, command.ids, lambda _: 1)


def _alter_scram(state: ControllerState, command: commands.AlterScramCredentials) -> list[Slice]:
    _check_records(len(command.changes))
    keys = [change.user for change in command.changes]
    return _divided(command, "changes", command.changes, keys, lambda _: 1, results=Results.PER_KEY)


def _alter_reassignments(state: ControllerState, command: commands.AlterReassignments) -> list[Slice]:
    _check_records(len(command.partitions))
    keys = [(item.topic, item.index) for item in command.partitions]
    return _divided(command, "partitions", command.partitions, keys, lambda _: 1)


def _elect_leaders(state: ControllerState, command: commands.ElectLeaders) -> list[Slice]:
    if command.partitions is None:
        return _by_topics(state, command)
    return _by_partitions(command, command.partitions)


def _list_reassignments(state: ControllerState, command: commands.ListReassignments) -> list[Slice]:
    if command.partitions is None:
        return _by_topics(state, command)
    return _by_partitions(command, command.partitions)


def _by_partitions(
    command: commands.ElectLeaders | commands.ListReassignments, partitions: Sequence[tuple[str, int]]
) -> list[Slice]:
    """Divide a command for many partitions, which differ from each other."""
    if len(partitions) <= CHECKS_PER_SLICE:
        return [Slice(command)]
    places = range(0, len(partitions), CHECKS_PER_SLICE)
    return [Slice(replace(command, partitions=tuple(partitions[at : at + CHECKS_PER_SLICE]))) for at in places]


def _by_topics(state: ControllerState, command: commands.ElectLeaders | commands.ListReassignments) -> list[Slice]:
    """Divide a command for all partitions. It does not see topics that are created after the first slice."""
    names = list(state.image.topics)
    partitions = [max(1, len(topic.partitions)) for topic in state.image.topics.values()]
    parts = list(_parts([[place] for place in range(len(names))], partitions, CHECKS_PER_SLICE))
    if len(parts) <= 1:
        return [Slice(command)]
    return [Slice(replace(command, topics=tuple(names[place] for (place,) in part))) for part in parts]


_DIVIDE: Final[dict[type[commands.Command], Callable[[ControllerState, Any], list[Slice]]]] = {
    commands.CreateTopics: _create_topics,
    commands.CreatePartitions: _create_partitions,
    commands.DeleteTopics: _delete_topics,
    commands.AlterConfigs: _alter_configs,
    commands.AlterClientQuotas: _alter_client_quotas,
    commands.CreateAcls: _create_acls,
    commands.RemoveAcls: _remove_acls,
    commands.AlterScramCredentials: _alter_scram,
    commands.AlterReassignments: _alter_reassignments,
    commands.ElectLeaders: _elect_leaders,
    commands.ListReassignments: _list_reassignments,
}


def _check_records(count: int) -> None:
    if count > RECORDS_PER_REQUEST_MAX:
        raise too_large()


def _divided(
    command: Any,
    name: str,
    items: Sequence[T],
    keys: Sequence[Hashable],
    records: Callable[[T], int],
    *,
    results: Results = Results.PER_ITEM,
) -> list[Slice]:
    """Return copies of `command` with a part of `items` in the field `name`. Items with equal keys are in one copy."""
    if len(set(keys)) == len(keys):
        return _consecutive(command, name, items, records)
    groups: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        groups.setdefault(key, []).append(place)
    parts = list(_parts(groups.values(), [records(item) for item in items], RECORDS_PER_SLICE))
    if len(parts) <= 1:
        return [Slice(command)]
    slices = []
    for part in parts:
        places = [place for group in part for place in group]
        if results is Results.PER_KEY:
            positions = [group[0] for group in part]
        elif results is Results.PER_UNIQUE_ITEM:
            unique: dict[T, int] = {}
            for place in places:
                unique.setdefault(items[place], place)
            positions = list(unique.values())
        else:
            positions = places
        slices.append(Slice(replace(command, **{name: tuple(items[place] for place in places)}), tuple(positions)))
    return slices


def _consecutive(command: Any, name: str, items: Sequence[T], records: Callable[[T], int]) -> list[Slice]:
    """Return copies of `command`, each with the items that follow those of the copy before it in the field `name`."""
    bounds, total = [0], 0
    for place, item in enumerate(items):
        weight = records(item)
        if place > bounds[-1] and total + weight > RECORDS_PER_SLICE:
            bounds.append(place)
            total = 0
        total += weight
    if len(bounds) == 1:
        return [Slice(command)]
    bounds.append(len(items))
    return [Slice(replace(command, **{name: tuple(items[start:end])})) for start, end in pairwise(bounds)]


def _parts(groups: Iterable[list[int]], weights: Sequence[int], limit: int) -> Iterator[list[list[int]]]:
    """Divide the groups of places into parts with a weight of up to `limit`, or with one group that is heavier."""
    part: list[list[int]] = []
    total = 0
    for group in groups:
        weight = sum(weights[place] for place in group)
        if part and total + weight > limit:
            yield part
            part, total = [], 0
        part.append(group)
        total += weight
    if part:
        yield part
