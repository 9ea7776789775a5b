"""How a member of a consumer group is reconciled (KIP-848), as one table: {(state, event): Action}.

What a heartbeat is for its member is judged first (`event_of` in reconcile.py); what an action finds decides between the
states of MAY_LEAD_TO. A member never loses a partition to another one before it has said, in UNREVOKED_PARTITIONS, that
it has given it up, or is gone.
"""

from enum import Enum
from typing import Final

from odradek.coordinator.group.modern.member import MemberState
from odradek.runtime.machine import BUG, Bug, TransitionTable


class Event(Enum):
    CURRENT = "heartbeat at the target's epoch"
    RESUBSCRIBED = "heartbeat at the target's epoch, other topics"
    BEHIND = "heartbeat behind the target's epoch"
    HOLDING = "heartbeat that does not give up what it must"
    HOLDING_RESUBSCRIBED = "heartbeat that does not give up what it must, other topics"
    RELEASED = "heartbeat that has given up what it must"
    REBALANCE_TIME_OUT = "rebalance time-out"
    STATIC_LEAVE = "static member leaves for a while"
    REPLACE = "static member comes back under another id"
    LEAVE = "leaves, or session over"


class Action(Enum):
    KEEP = "stays as it is"
    TRIM = "loses what it does not subscribe to"
    TRIM_MORE = "must give up what it does not subscribe to as well"
    ADVANCE = "moves towards the target"
    RESTART = "moves towards the target, with nothing to give up"
    FENCE = "FENCED_MEMBER_EPOCH"
    AWAY = "epoch -2, keeps its partitions"
    HAND_ON = "the new id takes its place"
    REMOVE = "removed"
    IGNORE = "nothing"


_S = MemberState
_KEEP, _TRIM, _MORE, _FENCE = Action.KEEP, Action.TRIM, Action.TRIM_MORE, Action.FENCE
_ADVANCE, _RESTART = Action.ADVANCE, Action.RESTART
_AWAY, _HAND_ON, _REMOVE, _IGNORE, _BUG = Action.AWAY, Action.HAND_ON, Action.REMOVE, Action.IGNORE, BUG

_COLUMNS: Final = (_S.STABLE, _S.UNREVOKED_PARTITIONS, _S.UNRELEASED_PARTITIONS, _S.UNKNOWN)
_ROWS: Final[dict[Event, tuple[Action | Bug, ...]]] = {
    #                            STABLE    UNREVOKED  UNRELEASED  UNKNOWN
    Event.CURRENT:              (_KEEP,    _BUG,      _ADVANCE,   _BUG),
    Event.RESUBSCRIBED:         (_TRIM,    _BUG,      _ADVANCE,   _BUG),
    Event.BEHIND:               (_ADVANCE, _BUG,      _ADVANCE,   _BUG),
    Event.HOLDING:              (_BUG,     _KEEP,     _BUG,       _FENCE),
    Event.HOLDING_RESUBSCRIBED: (_BUG,     _MORE,     _BUG,       _BUG),
    Event.RELEASED:             (_BUG,     _ADVANCE,  _BUG,       _RESTART),
    Event.REBALANCE_TIME_OUT:   (_IGNORE,  _REMOVE,   _IGNORE,    _IGNORE),
    Event.STATIC_LEAVE:         (_AWAY,    _AWAY,     _AWAY,      _AWAY),
    Event.REPLACE:              (_HAND_ON, _HAND_ON,  _HAND_ON,   _HAND_ON),
    Event.LEAVE:                (_REMOVE,  _REMOVE,   _REMOVE,    _REMOVE),
}  # fmt: skip

MAY_LEAD_TO: Final[dict[Action, tuple[MemberState, ...]]] = {
    Action.TRIM: (_S.STABLE, _S.UNREVOKED_PARTITIONS),
    Action.TRIM_MORE: (_S.UNREVOKED_PARTITIONS,),
    Action.ADVANCE: (_S.STABLE, _S.UNREVOKED_PARTITIONS, _S.UNRELEASED_PARTITIONS),
    Action.RESTART: (_S.STABLE, _S.UNRELEASED_PARTITIONS),
}
"""The other actions leave the state as it is."""

TRANSITIONS: Final[TransitionTable[MemberState, Event, Action]] = TransitionTable.of_rows(
    "consumer groups", MemberState, Event, _ROWS, columns=_COLUMNS, leads_to=MAY_LEAD_TO
)
look_up: Final = TRANSITIONS.look_up
"""The action for an event in a state. Raise TransitionBug for BUG."""
check_next: Final = TRANSITIONS.check_next
"""Raise TransitionBug unless the action of a cell may lead to this state."""
