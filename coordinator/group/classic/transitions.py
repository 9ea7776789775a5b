"""The machine of a classic group as one table: {(state, event): To | Refuse | Outcome}.

Read together with the rules that come before the table (join.py, sync.py, membership.py):

- *Who asks*: session limits, group size, protocols, the member id, the instance id and the generation are tested first.
  A request that names nobody the group knows is the event STRANGER; one of an instance that another member has taken is
  fenced, one of another generation is ILLEGAL_GENERATION, whatever the state.
- *Serial*: a decision is one step. Kafka holds the leader's SyncGroup in CompletingRebalance until its record is committed;
  what can come between there comes either before or after here, and nobody hears of the assignment before the commit.

Dead is a group that does not exist: there is no object in that state. Cells marked "-" can never be met: only an empty
group has no members, and only members can be told by name.
"""

from enum import Enum
from typing import Final, TypeAlias

from odradek.protocol.errors import ErrorCode
from odradek.runtime.machine import BUG, Bug, Refuse, To, TransitionTable, check_successors


class ClassicState(Enum):
    """The value is Kafka's name, as in DescribeGroups and ListGroups."""

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
"""state -> the states it may be entered from. Every row below is checked against it at import."""


class Event(Enum):
    UNKNOWN_MEMBER = "request with an unknown member id"
    JOIN_ID_REQUIRED = "JoinGroup, new, is given an id first (KIP-394)"
    JOIN_NEW = "JoinGroup, new"
    JOIN_PENDING = "JoinGroup, with the id just given"
    JOIN_LEADER = "JoinGroup, the leader, as before"
    JOIN_FOLLOWER = "JoinGroup, a follower, as before"
    JOIN_CHANGED = "JoinGroup, a member with other metadata"
    JOIN_REPLACES = "JoinGroup, an instance again without its id"
    JOIN_REPLACES_ANEW = "JoinGroup, an instance again, the vote changes"
    SYNC_LEADER = "SyncGroup, the leader"
    SYNC_FOLLOWER = "SyncGroup, a follower"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"
    SESSION_OVER = "a session is over"
    PENDING_OVER = "an id just given was not used"
    JOIN_TIMER = "join phase: its time is up"
    INITIAL_EXTENDED = "join phase: more time for a new group"
    ALL_JOINED = "join phase: ends"
    NO_MEMBER_JOINED = "join phase: no member has joined, static members are away"
    NO_MEMBER_LEFT = "join phase: the group has no members"
    SYNC_TIMER = "sync phase: its time is up"
    OVERSIZED = "loaded, larger than allowed"
    COMMIT_ALONE = "OffsetCommit, not as a member"
    COMMIT_MEMBER = "OffsetCommit, a member"
    TXN_COMMIT_ALONE = "TxnOffsetCommit, not as a member"
    TXN_COMMIT_MEMBER = "TxnOffsetCommit, a member"
    DELETE_OFFSETS = "OffsetDelete, not of consumers"
    DELETE = "DeleteGroups"


class Outcome(Enum):
    RESPOND = "response"
    """Told from the state, which stays."""
    WAIT = "waits"
    """The answer comes when the phase is over."""
    NO_CHANGE = "noted"
    """Members or clocks change, the state does not."""
    IGNORE = "too late"
    """A clock that has lost its reason."""


Action: TypeAlias = To[ClassicState] | Refuse | Outcome
"""`To`: the group enters this state."""

_RESPOND, _WAIT, _NO_CHANGE, _IGNORE, _BUG = Outcome.RESPOND, Outcome.WAIT, Outcome.NO_CHANGE, Outcome.IGNORE, BUG
_UNKNOWN = Refuse(ErrorCode.UNKNOWN_MEMBER_ID)
_REBALANCE = Refuse(ErrorCode.REBALANCE_IN_PROGRESS)
_NON_EMPTY = Refuse(ErrorCode.NON_EMPTY_GROUP)
_EMPTY, _PREPARING, _COMPLETING = To(_S.EMPTY), To(_S.PREPARING), To(_S.COMPLETING)
_STABLE, _DEAD = To(_S.STABLE), To(_S.DEAD)

_ROWS: Final[dict[Event, tuple[Action | Bug, ...]]] = {
    #                          Empty       Preparing    Completing  Stable      Dead
    Event.UNKNOWN_MEMBER:     (_UNKNOWN,   _UNKNOWN,    _UNKNOWN,   _UNKNOWN,   _UNKNOWN),
    Event.JOIN_ID_REQUIRED:   (_RESPOND,   _RESPOND,    _RESPOND,   _RESPOND,   _EMPTY),
    Event.JOIN_NEW:           (_PREPARING, _WAIT,       _PREPARING, _PREPARING, _PREPARING),
    Event.JOIN_PENDING:       (_PREPARING, _WAIT,       _PREPARING, _PREPARING, _BUG),
    Event.JOIN_LEADER:        (_BUG,       _WAIT,       _RESPOND,   _PREPARING, _BUG),
    Event.JOIN_FOLLOWER:      (_BUG,       _WAIT,       _RESPOND,   _RESPOND,   _BUG),
    Event.JOIN_CHANGED:       (_BUG,       _WAIT,       _PREPARING, _PREPARING, _BUG),
    Event.JOIN_REPLACES:      (_BUG,       _WAIT,       _PREPARING, _STABLE,    _BUG),
    Event.JOIN_REPLACES_ANEW: (_BUG,       _WAIT,       _PREPARING, _PREPARING, _BUG),
    Event.SYNC_LEADER:        (_BUG,       _REBALANCE,  _STABLE,    _RESPOND,   _BUG),
    Event.SYNC_FOLLOWER:      (_BUG,       _REBALANCE,  _WAIT,      _RESPOND,   _BUG),
    Event.HEARTBEAT:          (_BUG,       _REBALANCE,  _RESPOND,   _RESPOND,   _BUG),
    Event.LEAVE:              (_RESPOND,   _NO_CHANGE,  _PREPARING, _PREPARING, _BUG),
    Event.SESSION_OVER:       (_IGNORE,    _NO_CHANGE,  _PREPARING, _PREPARING, _IGNORE),
    Event.PENDING_OVER:       (_NO_CHANGE, _NO_CHANGE,  _NO_CHANGE, _NO_CHANGE, _BUG),
    Event.JOIN_TIMER:         (_IGNORE,    _NO_CHANGE,  _IGNORE,    _IGNORE,    _IGNORE),
    Event.INITIAL_EXTENDED:   (_BUG,       _NO_CHANGE,  _BUG,       _BUG,       _BUG),
    Event.ALL_JOINED:         (_BUG,       _COMPLETING, _BUG,       _BUG,       _BUG),
    Event.NO_MEMBER_JOINED:   (_BUG,       _NO_CHANGE,  _BUG,       _BUG,       _BUG),
    Event.NO_MEMBER_LEFT:     (_BUG,       _EMPTY,      _BUG,       _BUG,       _BUG),
    Event.SYNC_TIMER:         (_IGNORE,    _IGNORE,     _PREPARING, _PREPARING, _IGNORE),
    Event.OVERSIZED:          (_BUG,       _BUG,        _BUG,       _PREPARING, _BUG),
    Event.COMMIT_ALONE:       (_RESPOND,   _UNKNOWN,    _UNKNOWN,   _UNKNOWN,   _BUG),
    Event.COMMIT_MEMBER:      (_BUG,       _RESPOND,    _REBALANCE, _RESPOND,   _BUG),
    Event.TXN_COMMIT_ALONE:   (_RESPOND,   _RESPOND,    _RESPOND,   _RESPOND,   _BUG),
    Event.TXN_COMMIT_MEMBER:  (_BUG,       _RESPOND,    _RESPOND,   _RESPOND,   _BUG),
    Event.DELETE_OFFSETS:     (_RESPOND,   _NON_EMPTY,  _NON_EMPTY, _NON_EMPTY, _BUG),
    Event.DELETE:             (_DEAD,      _NON_EMPTY,  _NON_EMPTY, _NON_EMPTY, _BUG),
}  # fmt: skip

TRANSITIONS: Final[TransitionTable[ClassicState, Event, Action]] = TransitionTable.of_rows(
    "classic groups", ClassicState, Event, _ROWS
)
check_successors(TRANSITIONS, MAY_FOLLOW)
look_up: Final = TRANSITIONS.look_up
"""The action for an event in a state. Raise TransitionBug for BUG."""
