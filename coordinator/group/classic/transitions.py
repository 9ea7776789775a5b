"""State machine of a classic group as one table: {(state, event): To | Refuse | Outcome}.

- Checks before the table (join.py, sync.py, membership.py): session limits, group size, protocols, member id, instance
  id and generation. Their errors do not depend on the state, except for UNKNOWN_MEMBER.
- Serial decisions: a decision is one step. Kafka keeps the group in CompletingRebalance until the record of the
  leader's assignment is committed. Here the group changes its state when the record is applied. In both, members
  receive the assignment only after the commit.

Dead is a group that does not exist; no object has that state. A cell with "-" cannot occur: only an empty group has
no members, and only a group with members receives requests of members.
"""

from enum import Enum
from typing import Final, TypeAlias

from odradek.protocol.errors import ErrorCode
from odradek.runtime.machine import BUG, Bug, Refuse, To, TransitionTable, check_successors


class ClassicState(Enum):
    """State of a classic group. The values are the state names in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_S = ClassicState

MAY_FOLLOW: Final[dict[ClassicState, tuple[ClassicState, ...]]] = {
    _S.EMPTY: (_S.PREPARING, _S.DEAD),
    _S.PREPARING: (_S.STABLE, _S.COMPLETING, _S.EMPTY, _S.DEAD),
    _S.COMPLETING: (_S.PREPARING,),
    _S.STABLE: (_S.COMPLETING, _S.STABLE),
    _S.DEAD: (_S.EMPTY,),
}
"""State -> states from which it may be entered. All rows below are checked against it at import."""


class Event(Enum):
    """Request, time-out or change of the group. The values are the row titles in docs/groups.md."""

    UNKNOWN_MEMBER = "request with an unknown member id"
    JOIN_ID_REQUIRED = "JoinGroup: new member without a member id (KIP-394)"
    JOIN_NEW = "JoinGroup: new member"
    JOIN_PENDING = "JoinGroup: new member with a pending member id"
    JOIN_LEADER = "JoinGroup: leader, same protocols"
    JOIN_FOLLOWER = "JoinGroup: follower, same protocols"
    JOIN_CHANGED = "JoinGroup: member, other protocols"
    JOIN_STATIC = "JoinGroup: static member without its member id"
    JOIN_STATIC_NEW_PROTOCOL = "JoinGroup: static member without its member id, the selected protocol changes"
    SYNC_LEADER = "SyncGroup: leader"
    SYNC_FOLLOWER = "SyncGroup: follower"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"
    SESSION_TIMEOUT = "session time-out of a member"
    PENDING_TIMEOUT = "time-out of a pending member id"
    JOIN_TIMER = "join phase: time-out"
    INITIAL_DELAY_EXTENDED = "join phase: initial delay is extended"
    ALL_JOINED = "join phase: ends with members"
    NO_MEMBER_JOINED = "join phase: only static members, none has joined"
    NO_MEMBERS = "join phase: ends without members"
    SYNC_TIMER = "sync phase: time-out"
    OVERSIZED = "loaded with more members than group.max.size"
    COMMIT_NON_MEMBER = "OffsetCommit without member"
    COMMIT_MEMBER = "OffsetCommit of a member"
    TXN_COMMIT_NON_MEMBER = "TxnOffsetCommit without member"
    TXN_COMMIT_MEMBER = "TxnOffsetCommit of a member"
    DELETE_OFFSETS = "OffsetDelete, the protocol type is not consumer"
    DELETE = "DeleteGroups"


class Outcome(Enum):
    """Outcome of an event without a state change. The values are cells in docs/groups.md."""

    RESPOND = "response"
    """The coordinator responds from the state."""
    WAIT = "waits"
    """The response is sent when the phase ends."""
    NO_CHANGE = "stays"
    """Members or timers change; the state does not."""
    IGNORE = "ignored"
    """The timer no longer applies."""


Action: TypeAlias = To[ClassicState] | Refuse | Outcome
"""`To`: the group enters this state."""

_RESPOND, _WAIT, _NO_CHANGE, _IGNORE, _BUG = Outcome.RESPOND, Outcome.WAIT, Outcome.NO_CHANGE, Outcome.IGNORE, BUG
_UNKNOWN = Refuse(ErrorCode.UNKNOWN_MEMBER_ID)
_REBALANCE = Refuse(ErrorCode.REBALANCE_IN_PROGRESS)
_NON_EMPTY = Refuse(ErrorCode.NON_EMPTY_GROUP)
_EMPTY, _PREPARING, _COMPLETING = To(_S.EMPTY), To(_S.PREPARING), To(_S.COMPLETING)
_STABLE, _DEAD = To(_S.STABLE), To(_S.DEAD)

_ROWS: Final[dict[Event, tuple[Action | Bug, ...]]] = {
    #                                Empty       Preparing    Completing  Stable      Dead
    Event.UNKNOWN_MEMBER:           (_UNKNOWN,   _UNKNOWN,    _UNKNOWN,   _UNKNOWN,   _UNKNOWN),
    Event.JOIN_ID_REQUIRED:         (_RESPOND,   _RESPOND,    _RESPOND,   _RESPOND,   _EMPTY),
    Event.JOIN_NEW:                 (_PREPARING, _WAIT,       _PREPARING, _PREPARING, _PREPARING),
    Event.JOIN_PENDING:             (_PREPARING, _WAIT,       _PREPARING, _PREPARING, _BUG),
    Event.JOIN_LEADER:              (_BUG,       _WAIT,       _RESPOND,   _PREPARING, _BUG),
    Event.JOIN_FOLLOWER:            (_BUG,       _WAIT,       _RESPOND,   _RESPOND,   _BUG),
    Event.JOIN_CHANGED:             (_BUG,       _WAIT,       _PREPARING, _PREPARING, _BUG),
    Event.JOIN_STATIC:              (_BUG,       _WAIT,       _PREPARING, _STABLE,    _BUG),
    Event.JOIN_STATIC_NEW_PROTOCOL: (_BUG,       _WAIT,       _PREPARING, _PREPARING, _BUG),
    Event.SYNC_LEADER:              (_BUG,       _REBALANCE,  _STABLE,    _RESPOND,   _BUG),
    Event.SYNC_FOLLOWER:            (_BUG,       _REBALANCE,  _WAIT,      _RESPOND,   _BUG),
    Event.HEARTBEAT:                (_BUG,       _REBALANCE,  _RESPOND,   _RESPOND,   _BUG),
    Event.LEAVE:                    (_RESPOND,   _NO_CHANGE,  _PREPARING, _PREPARING, _BUG),
    Event.SESSION_TIMEOUT:          (_IGNORE,    _NO_CHANGE,  _PREPARING, _PREPARING, _IGNORE),
    Event.PENDING_TIMEOUT:          (_NO_CHANGE, _NO_CHANGE,  _NO_CHANGE, _NO_CHANGE, _BUG),
    Event.JOIN_TIMER:               (_IGNORE,    _NO_CHANGE,  _IGNORE,    _IGNORE,    _IGNORE),
    Event.INITIAL_DELAY_EXTENDED:   (_BUG,       _NO_CHANGE,  _BUG,       _BUG,       _BUG),
    Event.ALL_JOINED:               (_BUG,       _COMPLETING, _BUG,       _BUG,       _BUG),
    Event.NO_MEMBER_JOINED:         (_BUG,       _NO_CHANGE,  _BUG,       _BUG,       _BUG),
    Event.NO_MEMBERS:               (_BUG,       _EMPTY,      _BUG,       _BUG,       _BUG),
    Event.SYNC_TIMER:               (_IGNORE,    _IGNORE,     _PREPARING, _PREPARING, _IGNORE),
    Event.OVERSIZED:                (_BUG,       _BUG,        _BUG,       _PREPARING, _BUG),
    Event.COMMIT_NON_MEMBER:        (_RESPOND,   _UNKNOWN,    _UNKNOWN,   _UNKNOWN,   _BUG),
    Event.COMMIT_MEMBER:            (_BUG,       _RESPOND,    _REBALANCE, _RESPOND,   _BUG),
    Event.TXN_COMMIT_NON_MEMBER:    (_RESPOND,   _RESPOND,    _RESPOND,   _RESPOND,   _BUG),
    Event.TXN_COMMIT_MEMBER:        (_BUG,       _RESPOND,    _RESPOND,   _RESPOND,   _BUG),
    Event.DELETE_OFFSETS:           (_RESPOND,   _NON_EMPTY,  _NON_EMPTY, _NON_EMPTY, _BUG),
    Event.DELETE:                   (_DEAD,      _NON_EMPTY,  _NON_EMPTY, _NON_EMPTY, _BUG),
}  # fmt: skip

TRANSITIONS: Final[TransitionTable[ClassicState, Event, Action]] = TransitionTable.of_rows(
    "classic groups", ClassicState, Event, _ROWS
)
check_successors(TRANSITIONS, MAY_FOLLOW)
look_up: Final = TRANSITIONS.look_up
"""The action for an event in a state. Raise TransitionBug for BUG."""
