"""JoinGroup (v0-9): of new members, dynamic (KIP-394) and static (KIP-345), and of members that join again."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from odradek.coordinator.group.classic.commands import join_refused, session_timer, sync_refused
from odradek.coordinator.group.classic.draft import ClassicDraft
from odradek.coordinator.group.classic.member import Member, Protocols, metadata_bytes, protocols_of
from odradek.coordinator.group.classic.rebalance import follow, generation_for
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
"""From this version on a client without an id is sent away with one before it counts (KIP-394)."""
SKIP_ASSIGNMENT_MIN: Final = 9
"""From this version on a leader can be told not to assign (KIP-814)."""
ANY_UUID: Final = UUID(int=0)
"""As long as every other, in an id that is not made yet."""
PENDING_MAX: Final = 10_000
"""Ids of one group that are given out and not yet joined with; Kafka has no limit. Beyond it a client must try again."""


@dataclass(slots=True)
class _Joining:
    """One JoinGroup at one group; `is_there` is False for a group that it makes."""

    command: JoinGroup
    draft: ClassicDraft
    is_there: bool
    protocols: Protocols

    @property
    def group(self) -> ClassicGroup:
        return self.draft.group

    def act(self, event: Event) -> Any:
        return look_up(self.group.state if self.is_there else ClassicState.DEAD, event)

    def waiting(self, action: Any) -> Any:
        """The member has its waiter: what comes now?"""
        follow(action, self.draft)
        return WAITING


def decide_join(state: State, command: JoinGroup, now_ms: int) -> Decision[Any]:
    """Reply: JoinGroupResponse, also where it refuses, or WAITING."""
    request = command.request
    group = state.groups.get(request.group_id)
    is_there = isinstance(group, ClassicGroup)
    if not is_there and request.member_id:
        look_up(ClassicState.DEAD, Event.UNKNOWN_MEMBER)
        return Decision(join_refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
    if group is None and not state.has_capacity_for(request.group_id):
        return Decision(join_refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    if isinstance(group, ClassicGroup):
        draft = ClassicDraft.of(state, group, now_ms)
    else:
        draft = ClassicDraft(state, ClassicGroup(request.group_id, state_ms=now_ms), now_ms)
    joining = _Joining(command, draft, is_there, protocols_of(request.protocols))
    try:
        reply = _join(joining, state)
    except Refusal as refusal:
        return draft.refused(join_refused(refusal.error, request.member_id))
    if not is_there and _creates_group(joining):
        draft.records = [*_tombstones_of_former(group), new_group_record(draft.group, now_ms)]
    return draft.decision(reply)


def _creates_group(joining: _Joining) -> bool:
    # Kafka makes the group even where it refuses the protocols of its first member.
    return bool(joining.group.members or joining.group.pending)


def _tombstones_of_former(group: Group | None) -> tuple[Any, ...]:
    """An empty consumer group gives way to a classic one."""
    return () if group is None else group.tombstones()


def _join(joining: _Joining, state: State) -> Any:
    request, group = joining.command.request, joining.group
    if not group.has_capacity(request.member_id, joining.draft.config.group_max_size):
        return _refuse_as_full(joining)
    if not group.supports(request.protocol_type, joining.protocols):
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    member = _existing_member(joining)
    cost = _cost(joining, member)
    if not joining.draft.reserve(cost, is_new_member=member is None):
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if request.member_id in group.pending:
        if request.group_instance_id is not None:
            return join_refused(ErrorCode.UNKNOWN_SERVER_ERROR)  # the id was given to a dynamic member
        return _add(joining, request.member_id, Event.JOIN_PENDING)
    if request.member_id:
        return _join_again(joining)
    prefix = joining.command.caller.client_id if request.group_instance_id is None else request.group_instance_id
    member_id = f"{prefix}-{state.new_id()}"
    if request.group_instance_id in group.instances:
        return _replace(joining, member_id)
    if request.group_instance_id is None and joining.command.caller.api_version >= KNOWN_MEMBER_ID_MIN:
        return _require_member_id(joining, member_id)
    return _add(joining, member_id, Event.JOIN_NEW)


def _refuse_as_full(joining: _Joining) -> JoinGroupResponse:
    """Who found no room is no member any more; the others do not go on waiting for it (docs/decisions/0067)."""
    group, member_id = joining.group, joining.command.request.member_id
    if member_id in group.members or member_id in group.pending:
        group.remove(member_id)
        joining.draft.stop_session(member_id)
        follow(Outcome.NO_CHANGE, joining.draft)
    return join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED)


def _existing_member(joining: _Joining) -> Member | None:
    """The member that joins again, or takes its own place."""
    request, group = joining.command.request, joining.group
    return group.members.get(request.member_id or group.instances.get(request.group_instance_id or "", ""))


def _cost(joining: _Joining, member: Member | None) -> int:
    """Bytes of memory that the member takes beyond what it has."""
    request, caller = joining.command.request, joining.command.caller
    metadata = metadata_bytes(joining.protocols)
    if member is not None:
        return metadata - member.metadata_bytes
    if request.member_id in joining.group.pending:
        return metadata
    member_id = f"{request.group_instance_id or caller.client_id}-{ANY_UUID}"
    return (
        MEMBER_BYTES + metadata + text_bytes(member_id, request.group_instance_id, caller.client_id, caller.client_host)
    )


def _require_member_id(joining: _Joining, member_id: str) -> JoinGroupResponse:
    group = joining.group
    if len(group.pending) >= PENDING_MAX:
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    joining.act(Event.JOIN_ID_REQUIRED)
    group.pending[member_id] = None
    delay_ms = joining.command.request.session_timeout_ms
    joining.draft.timers.append(session_timer(group.group_id, member_id, delay_ms))
    return join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _add(joining: _Joining, member_id: str, event: Event) -> Any:
    request, caller, group = joining.command.request, joining.command.caller, joining.group
    action = joining.act(event)
    group.joined_since_check |= group.state is ClassicState.PREPARING and group.previous is ClassicState.EMPTY
    member = Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=joining.protocols,
        joining=joining.command.waiter,
        is_new=True,
    )
    group.add(member, request.protocol_type)
    # A new member cannot send heartbeats yet, and one that has given up and comes again comes under another id: those
    # left behind must go at some time.
    delay_ms = joining.draft.config.new_member_join_timeout_ms
    joining.draft.timers.append(session_timer(group.group_id, member_id, delay_ms))
    return joining.waiting(action)


def _join_again(joining: _Joining) -> Any:
    request, group = joining.command.request, joining.group
    member = group.check_member(request.member_id, request.group_instance_id)
    if member.protocols != joining.protocols:
        event = Event.JOIN_CHANGED
    else:
        event = Event.JOIN_LEADER if group.leader == member.member_id else Event.JOIN_FOLLOWER
    action = joining.act(event)
    if action is Outcome.RESPOND:
        return generation_for(group, member)
    _take(joining, member)
    return joining.waiting(action)


def _take(joining: _Joining, member: Member) -> None:
    """The member is as this request says, and waits by it. A request that waited before has been given up by its client."""
    updated = joining.group.update(
        member,
        joining.protocols,
        rebalance_timeout_ms=joining.command.request.rebalance_timeout_ms,
        session_timeout_ms=joining.command.request.session_timeout_ms,
    )
    before = joining.group.await_join(updated, joining.command.waiter)
    joining.draft.respond(before, join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))


def _replace(joining: _Joining, new_id: str) -> Any:
    """A static member that has forgotten its id: who had the instance until now is fenced."""
    group, draft, instance_id = joining.group, joining.draft, joining.command.request.group_instance_id
    assert instance_id is not None
    old_id = group.instances[instance_id]
    old = group.members[old_id]
    changes_vote = group.vote({old_id: joining.protocols}) != group.protocol_name
    action = joining.act(Event.JOIN_REPLACES_ANEW if changes_vote else Event.JOIN_REPLACES)
    draft.stop_session(old_id)
    if action == To(ClassicState.STABLE):
        return _replace_without_rebalance(joining, old_id, new_id)
    fenced = ErrorCode.FENCED_INSTANCE_ID
    draft.respond(old.joining, join_refused(fenced, old_id))
    draft.respond(old.syncing, sync_refused(fenced))
    member = group.replace(old_id, new_id)
    draft.restart_session(member)
    _take(joining, member)
    return joining.waiting(action)


def _replace_without_rebalance(joining: _Joining, old_id: str, new_id: str) -> JoinGroupResponse:
    """Nothing changes for the others, so there is no rebalance: the member takes up its old assignment."""
    led_by = joining.group.leader
    old = joining.group.members[old_id]
    assert old.joining is None, old_id
    assert old.syncing is None, old_id
    group = joining.group.copied()
    member = group.replace(old_id, new_id)
    joining.draft.restart_session(member)
    member = group.update(
        member,
        joining.protocols,
        rebalance_timeout_ms=joining.command.request.rebalance_timeout_ms,
        session_timeout_ms=joining.command.request.session_timeout_ms,
    )
    joining.draft.records.append(group_record(group, detail=group))
    response = generation_for(group, member)
    if joining.command.caller.api_version >= SKIP_ASSIGNMENT_MIN:
        response.skip_assignment = group.leader == new_id
    else:  # an older leader must not find out that it leads, lest it assign
        response.leader, response.members = led_by or "", []
    return response
