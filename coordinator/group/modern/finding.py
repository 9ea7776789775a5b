"""Which group a request is about: one of the consumer protocol, a new one, or a classic one that becomes one."""

from odradek.coordinator.group.modern.conversion.upgrade import to_consumer
from odradek.coordinator.group.modern.draft import ConsumerDraft
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.coordinator.group.state import State
from odradek.protocol.errors import ErrorCode, Refusal


def group_for(state: State, group_id: str) -> ConsumerGroup:
    """Raises Refusal(GROUP_ID_NOT_FOUND)."""
    group = state.groups.get(group_id)
    if group is None:
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, ConsumerGroup):
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    return group


def joining_group(state: State, group_id: str, now_ms: int) -> ConsumerDraft:
    """For a member that joins. A classic group is converted by it. Raises Refusal: GROUP_ID_NOT_FOUND when it may
    not, COORDINATOR_NOT_AVAILABLE when there are too many.
    """
    group = state.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return ConsumerDraft(state, group, now_ms)
    draft = ConsumerDraft(state, ConsumerGroup(group_id), now_ms)
    if group is not None:
        to_consumer(draft, group)
    elif not state.has_capacity_for(group_id):
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "There is no room for more groups here.")
    return draft
