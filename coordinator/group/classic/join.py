"""JoinGroup (v0-9) for new members, dynamic (KIP-394) and static (KIP-345), and for members that rejoin."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from odradek.coordinator.group.classic.commands import join_refused, session_timer, sync_refused
from odradek.coordinator.group.classic.draft import ClassicDraft
from odradek.coordinator.group.classic.member import Member, Protocols, metadata_bytes, protocols_of
from odradek.coordinator.group.classic.rebalance import continue_rebalance, join_response
from odradek.coordinator.group.classic.records import group_record, new_group_record
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState, Event, Outcome, look_up
from odradek.coordinator.group.commands import WAITING, JoinGroup
from odradek.coordinator.group.memory_accounting import MEMBER_BYTES, text_bytes
from odradek.coordinator.group.state import Group, State
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.join_group import JoinGroupResponse
from odradek.runtime.machine import To
from odradek.runtime.shard import Decision

KNOWN_MEMBER_ID_MIN: Final = 4
"""First version of JoinGroup in which a new client receives a member id, and then joins with it (KIP-394)."""
SKIP_ASSIGNMENT_MIN: Final = 9
"""First version of JoinGroup with `skip_assignment` in the response: the leader does not assign again (KIP-814)."""
ANY_UUID: Final = UUID(int=0)
"""Placeholder with the length of a generated UUID, for the size of a future member id."""
PENDING_MAX: Final = 10_000
"""Maximum pending member ids per group. Kafka has no limit."""


@dataclass(slots=True)
class _JoinContext:
    """One JoinGroup request with its draft. `group_exists` is False if the request creates the group."""

    command: JoinGroup
    draft: ClassicDraft
    group_exists: bool
    protocols: Protocols

    @property
    def group(self) -> ClassicGroup:
        return self.draft.group

    def act(self, event: Event) -> Any:
        return look_up(self.group.state if self.group_exists else ClassicState.DEAD, event)

    def wait(self, action: Any) -> Any:
        """Carry out the action for the member's waiting request, and reply WAITING."""
        continue_rebalance(action, self.draft)
        return WAITING


def decide_join(state: State, command: JoinGroup, now_ms: int) -> Decision[Any]:
    """Decide a JoinGroup request to a classic group.

    The reply is a JoinGroupResponse, also for errors, or WAITING until the join phase ends.
    """
    request = command.request
    group = state.groups.get(request.group_id)
    group_exists = isinstance(group, ClassicGroup)
    if not group_exists and request.member_id:
        look_up(ClassicState.DEAD, Event.UNKNOWN_MEMBER)
        return Decision(join_refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
    if group is None and not state.has_capacity_for(request.group_id):
        return Decision(join_refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    if isinstance(group, ClassicGroup):
        draft = ClassicDraft.of(state, group, now_ms)
    else:
        draft = ClassicDraft(state, ClassicGroup(request.group_id, state_ms=now_ms), now_ms)
    context = _JoinContext(command, draft, group_exists, protocols_of(request.protocols))
    try:
        reply = _join(context, state)
    except Refusal as refusal:
        return draft.refused(join_refused(refusal.error, request.member_id))
    if not group_exists and _creates_group(context):
        draft.records = [*_tombstones_of_former(group), new_group_record(draft.group, now_ms)]
    return draft.decision(reply)


def _creates_group(context: _JoinContext) -> bool:
    # Kafka creates the group even if it refuses the protocols of the first member.
    return bool(context.group.members or context.group.pending_ids)


def _tombstones_of_former(group: Group | None) -> tuple[Any, ...]:
    """Return the tombstones of an empty consumer group, which the new classic group replaces."""
    return () if group is None else group.tombstones()


def _join(context: _JoinContext, state: State) -> Any:
    request, group = context.command.request, context.group
    if not group.has_capacity(request.member_id, context.draft.config.group_max_size):
        return _refuse_as_full(context)
    if not group.supports(request.protocol_type, context.protocols):
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    member = _existing_member(context)
    cost = _cost(context, member)
    if not context.draft.reserve(cost, is_new_member=member is None):
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if request.member_id in group.pending_ids:
        if request.group_instance_id is not None:
            return join_refused(ErrorCode.UNKNOWN_SERVER_ERROR)  # the pending id belongs to a dynamic member
        return _add(context, request.member_id, Event.JOIN_PENDING)
    if request.member_id:
        return _join_again(context)
    prefix = context.command.caller.client_id if request.group_instance_id is None else request.group_instance_id
    member_id = f"{prefix}-{state.new_id()}"
    if request.group_instance_id in group.instances:
        return _replace_static_member(context, member_id)
    if request.group_instance_id is None and context.command.caller.api_version >= KNOWN_MEMBER_ID_MIN:
        return _require_member_id(context, member_id)
    return _add(context, member_id, Event.JOIN_NEW)


def _refuse_as_full(context: _JoinContext) -> JoinGroupResponse:
    """Refuse a member of a full group and remove it, so that the join phase does not wait for it (decision 0067)."""
    group, member_id = context.group, context.command.request.member_id
    if member_id in group.members or member_id in group.pending_ids:
        group.remove(member_id)
        context.draft.stop_session(member_id)
        continue_rebalance(Outcome.NO_CHANGE, context.draft)
    return join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED)


def _existing_member(context: _JoinContext) -> Member | None:
    """Return the member that rejoins, or the static member that this request replaces."""
    request, group = context.command.request, context.group
    return group.members.get(request.member_id or group.instances.get(request.group_instance_id or "", ""))


def _cost(context: _JoinContext, member: Member | None) -> int:
    """Return the bytes of memory that the member takes in addition to its current ones."""
    request, caller = context.command.request, context.command.caller
    metadata = metadata_bytes(context.protocols)
    if member is not None:
        return metadata - member.metadata_bytes
    if request.member_id in context.group.pending_ids:
        return metadata
    member_id = f"{request.group_instance_id or caller.client_id}-{ANY_UUID}"
    return (
        MEMBER_BYTES + metadata + text_bytes(member_id, request.group_instance_id, caller.client_id, caller.client_host)
    )


def _require_member_id(context: _JoinContext, member_id: str) -> JoinGroupResponse:
    group = context.group
    if len(group.pending_ids) >= PENDING_MAX:
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    context.act(Event.JOIN_ID_REQUIRED)
    group.pending_ids[member_id] = None
    delay_ms = context.command.request.session_timeout_ms
    context.draft.timers.append(session_timer(group.group_id, member_id, delay_ms))
    return join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _add(context: _JoinContext, member_id: str, event: Event) -> Any:
    request, caller, group = context.command.request, context.command.caller, context.group
    action = context.act(event)
    group.joined_since_check |= group.state is ClassicState.PREPARING and group.previous_state is ClassicState.EMPTY
    member = Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=context.protocols,
        join_waiter=context.command.waiter,
        is_new=True,
    )
    group.add(member, request.protocol_type)
    # A new member has no member id yet, so it cannot send heartbeats. If its client retries, it gets another member id.
    # This time-out removes the abandoned one.
    delay_ms = context.draft.config.new_member_join_timeout_ms
    context.draft.timers.append(session_timer(group.group_id, member_id, delay_ms))
    return context.wait(action)


def _join_again(context: _JoinContext) -> Any:
    request, group = context.command.request, context.group
    member = group.check_member(request.member_id, request.group_instance_id)
    if member.protocols != context.protocols:
        event = Event.JOIN_CHANGED
    else:
        event = Event.JOIN_LEADER if group.leader == member.member_id else Event.JOIN_FOLLOWER
    action = context.act(event)
    if action is Outcome.RESPOND:
        return join_response(group, member)
    _update_member(context, member)
    return context.wait(action)


def _update_member(context: _JoinContext, member: Member) -> None:
    """Update the member from this request, which waits from now on. Its earlier waiting request is abandoned."""
    updated = context.group.update(
        member,
        context.protocols,
        rebalance_timeout_ms=context.command.request.rebalance_timeout_ms,
        session_timeout_ms=context.command.request.session_timeout_ms,
    )
    earlier_waiter = context.group.set_join_waiter(updated, context.command.waiter)
    context.draft.respond(earlier_waiter, join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))


def _replace_static_member(context: _JoinContext, new_id: str) -> Any:
    """Give a static member that joins without its member id a new one, and fence the old id."""
    group, draft, instance_id = context.group, context.draft, context.command.request.group_instance_id
    assert instance_id is not None
    old_id = group.instances[instance_id]
    old = group.members[old_id]
    selection_changes = group.select_protocol({old_id: context.protocols}) != group.protocol_name
    action = context.act(Event.JOIN_STATIC_NEW_PROTOCOL if selection_changes else Event.JOIN_STATIC)
    draft.stop_session(old_id)
    if action == To(ClassicState.STABLE):
        return _replace_without_rebalance(context, old_id, new_id)
    fenced = ErrorCode.FENCED_INSTANCE_ID
    draft.respond(old.join_waiter, join_refused(fenced, old_id))
    draft.respond(old.sync_waiter, sync_refused(fenced))
    member = group.replace_static_member(old_id, new_id)
    draft.restart_session(member)
    _update_member(context, member)
    return context.wait(action)


def _replace_without_rebalance(context: _JoinContext, old_id: str, new_id: str) -> JoinGroupResponse:
    """Replace the member id without a rebalance. The member keeps its assignment."""
    previous_leader = context.group.leader
    old = context.group.members[old_id]
    assert old.join_waiter is None, old_id
    assert old.sync_waiter is None, old_id
    group = context.group.copy()
    member = group.replace_static_member(old_id, new_id)
    context.draft.restart_session(member)
    member = group.update(
        member,
        context.protocols,
        rebalance_timeout_ms=context.command.request.rebalance_timeout_ms,
        session_timeout_ms=context.command.request.session_timeout_ms,
    )
    context.draft.records.append(group_record(group, detail=group))
    response = join_response(group, member)
    if context.command.caller.api_version >= SKIP_ASSIGNMENT_MIN:
        response.skip_assignment = group.leader == new_id
    else:  # before v9, a member that receives its own id as the leader would assign again
        response.leader, response.members = previous_leader or "", []
    return response
