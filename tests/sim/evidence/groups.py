"""Collection of the group evidence from the files of `__consumer_offsets` at the end of a run."""

from typing import TYPE_CHECKING

from tests.sim.checkers.evidence import GroupEvidence
from tests.sim.checkers.group_log import GroupModel
from tests.sim.options.group_options import COPIER
from tests.sim.world import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from tests.sim.history import Operation
    from tests.sim.world import World


def collect_groups(world: "World", final: "list[Operation]") -> GroupEvidence | None:
    """Read the files of `__consumer_offsets` after the last clean stop. Return None for a run without groups."""
    if world.options.groups is None:
        return None
    watch, monitor = world.monitor.groups, world.monitor
    evidence = GroupEvidence(
        copiers=tuple(plan.name for plan in world.options.groups.plans if plan.task == COPIER),
        places=tuple(world.partitions),
        alone=world.options.groups.alone,
        topic_id=watch.topic_id.bytes,
        assignments=watch.written.assignments,
        final=final,
        ended_late=watch.ended_late,
        begun_anew=watch.begun_anew,
    )
    alone = world.options.groups.alone
    own = dict.fromkeys((alone, *(plan.name for plan in world.options.groups.plans)))
    any_group = world.options.hostile is None  # a hostile client commits any offsets for groups of its own
    for index in watch.indexes():
        model = GroupModel.of(monitor.surviving_batches((CONSUMER_OFFSETS, index)))
        for place, change in model.committed.items():
            if change.offset is not None and (any_group or place[0] in own):
                evidence.committed[place] = change.offset
        for change in model.changes:
            if any_group or change.place[0] in own:
                evidence.changes.setdefault(change.place, []).append(change)
    return evidence
