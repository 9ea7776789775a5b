"""DescribeGroups (v0-6) for one group."""

from typing import Final

from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState
from odradek.coordinator.group.commands import DescribeClassic
from odradek.coordinator.group.state import State
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from odradek.runtime.shard import Decision

NOT_FOUND_MIN: Final = 6
"""First version with GROUP_ID_NOT_FOUND for a missing or non-classic group (KIP-1043). Earlier ones return Dead."""


def decide_describe(state: State, command: DescribeClassic, now_ms: int) -> Decision[DescribedGroup]:
    """Describe a group. Only a stable group has member metadata, because it belongs to the selected protocol."""
    group = state.groups.get(command.group_id)
    if not isinstance(group, ClassicGroup):
        dead = DescribedGroup(group_id=command.group_id, group_state=ClassicState.DEAD.value)
        if command.api_version >= NOT_FOUND_MIN:
            dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            missing = "not found" if group is None else "is not a classic group"
            dead.error_message = f"Group {command.group_id} {missing}."
        return Decision(dead)
    stable = group.state is ClassicState.STABLE
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    return Decision(described)
