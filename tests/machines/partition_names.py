"""Conversions between the core's partitions and those of the group models: (topic, number)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Set

    from odradek.coordinator.group.modern.member import Partitions
    from odradek.coordinator.group.modern.state import ConsumerGroup
    from tests.machines.modern_model import Partition
    from tests.support.modern_rig import Held


def by_topic(partitions: Iterable[Partition]) -> Held:
    held: dict[str, tuple[int, ...]] = {}
    for topic, number in sorted(partitions):
        held[topic] = (*held.get(topic, ()), number)
    return held


def partitions_of(held: Held) -> set[Partition]:
    return {(topic, number) for topic, numbers in held.items() for number in numbers}


def epochs_of(partitions: Partitions) -> dict[Partition, int]:
    """Return partition -> member epoch at which it was assigned."""
    return {(name_of(t), number): epoch for t, held in partitions.items() for number, epoch in held.items()}


def new_targets(
    group: ConsumerGroup, wanted: Set[Partition], members: Set[str], topics_of: Callable[[str], Iterable[str]]
) -> dict[str, set[Partition]]:
    """Return the core's target assignment.

    Assert that it assigns each of `wanted` once, to a member that subscribes to its topic.
    """
    targets = {
        name: {(name_of(t), number) for t, numbers in target.items() for number in numbers}
        for name, target in group.targets.items()
    }
    assert targets.keys() == members
    assigned = [partition for target in targets.values() for partition in target]
    assert len(assigned) == len(set(assigned))
    assert set(assigned) == wanted
    for name, target in targets.items():
        assert {topic for topic, _ in target} <= set(topics_of(name))
    return targets


def name_of(topic_id: bytes) -> str:
    """Return the topic name. FakeTopics pads the name to make the id."""
    return topic_id.rstrip(b"\0").decode()
