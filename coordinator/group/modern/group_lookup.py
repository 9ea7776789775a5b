"""Find the group of a request, and create or convert it for a member that joins."""

from odradek.coordinator.group.modern.conversion.upgrade import convert_to_consumer
from odradek.coordinator.group.modern.draft import ConsumerDraft
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.coordinator.group.state import State
from odradek.protocol.errors import ErrorCode, Refusal


def existing_group(state: State, group_id: str) -> ConsumerGroup:
    """Return the consumer group. Raise Refusal(GROUP_ID_NOT_FOUND) if there is none."""
    group = state.groups.get(group_id)
    if group is None:
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, ConsumerGroup):
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    return group


def group_to_join(state: State, group_id: str, now_ms: int) -> ConsumerDraft:
    """Return a draft for a member that joins: of the consumer group, a new group, or a converted classic group.

    Raise Refusal: GROUP_ID_NOT_FOUND if the conversion is not allowed, COORDINATOR_NOT_AVAILABLE if there are too many
    groups.
    """
    group = state.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return ConsumerDraft(state, group, now_ms)
    draft = ConsumerDraft(state, ConsumerGroup(group_id), now_ms)
    if group is not None:
        convert_to_consumer(draft, group)
    elif not state.has_capacity_for(group_id):
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The maximum number of groups is reached.")
    return draft
