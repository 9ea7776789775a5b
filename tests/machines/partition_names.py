"""Partitions as the machines and models of groups speak of them: (topic, number)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Set

    from odradek.coordinator.group.modern.member import Partitions
    from odradek.coordinator.group.modern.state import ConsumerGroup
    from tests.machines.modern_model import Part
    from tests.support.modern_rig import Held


def by_topic(found: Iterable[Part]) -> Held:
    held: dict[str, tuple[int, ...]] = {}
    for topic, number in sorted(found):
        held[topic] = (*held.get(topic, ()), number)
    return held


def parts(held: Held) -> set[Part]:
    return {(topic, number) for topic, numbers in held.items() for number in numbers}


def since(partitions: Partitions) -> dict[Part, int]:
    """With the epochs that they are held since."""
    return {(name_of(t), number): epoch for t, held in partitions.items() for number, epoch in held.items()}


def new_targets(
    group: ConsumerGroup, wanted: Set[Part], members: Set[str], topics_of: Callable[[str], Iterable[str]]
) -> dict[str, set[Part]]:
    """The core has a new target: everything that is wanted, once, each by a member that subscribes to it."""
    found = {
        name: {(name_of(t), number) for t, numbers in target.items() for number in numbers}
        for name, target in group.targets.items()
    }
    assert found.keys() == members
    everything = [part for target in found.values() for part in target]
    assert len(everything) == len(set(everything))
    assert set(everything) == wanted
    for name, target in found.items():
        assert {topic for topic, _ in target} <= set(topics_of(name))
    return found


def name_of(topic_id: bytes) -> str:
    """Topics of the rigs are named by their ids."""
    return topic_id.rstrip(b"\0").decode()
