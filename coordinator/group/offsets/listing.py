"""ListGroups for groups of both protocols."""

from typing import Final

from odradek.coordinator.bounded_ids import text_bytes_max
from odradek.coordinator.group.commands import ListGroups
from odradek.coordinator.group.state import State
from odradek.protocol.messages.list_groups import ListedGroup
from odradek.runtime.shard import Decision

LISTED_GROUP_BYTES: Final = 600
"""Maximum bytes of one group in a ListGroups response, in addition to LISTED_COPIES of its id and protocol type.

They are the object, its places in lists, and the pieces of its encoded form.
"""
LISTED_COPIES: Final = 3
"""Copies of the group id and of the protocol type that exist while a ListGroups response is encoded."""


def decide_list(state: State, command: ListGroups, now_ms: int) -> Decision[list[ListedGroup]]:
    """Return the groups that match both filters.

    An empty filter matches all groups. A state or type that does not exist matches none.
    """
    states, types = command.states, command.types
    return Decision(
        [
            ListedGroup(group.group_id, group.protocol_type, group.state_name, group.kind.value)
            for group in state.groups.values()
            if (not states or group.state_name.lower() in states) and (not types or group.kind.value in types)
        ]
    )


def listed_bytes_max(state: State) -> int:
    """Return the maximum memory of the reply to ListGroups without filters, and of its encoded form, in bytes."""
    groups = state.groups
    types = sum(text_bytes_max(group.protocol_type) for group in groups.values())
    return LISTED_GROUP_BYTES * len(groups) + LISTED_COPIES * (groups.keys_bytes + types)
