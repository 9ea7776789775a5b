"""ListGroups for groups of both protocols."""

from odradek.coordinator.group.commands import ListGroups
from odradek.coordinator.group.state import State
from odradek.protocol.messages.list_groups import ListedGroup
from odradek.runtime.shard import Decision


def decide_list(state: State, command: ListGroups, now_ms: int) -> Decision[list[ListedGroup]]:
    """Return the groups that match both filters, without regard to case.

    An empty filter matches all groups. A state or type that does not exist matches none.
    """
    states = frozenset(name.strip().lower() for name in command.states)
    types = frozenset(name.lower() for name in command.types)
    return Decision(
        [
            ListedGroup(group.group_id, group.protocol_type, group.state_name, group.kind.value)
            for group in state.groups.values()
            if (not states or group.state_name.lower() in states) and (not types or group.kind.value in types)
        ]
    )
