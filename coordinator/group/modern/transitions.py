"""State machine of a consumer group member's reconciliation (KIP-848) as one table: {(state, event): Action}.

`event_of` in reconcile.py classifies a heartbeat. If an action has several next states in MAY_LEAD_TO, its outcome
decides. Another member receives a partition only after its holder has confirmed the revocation in
UNREVOKED_PARTITIONS, or was removed.
"""

from enum import Enum
from typing import Final

from odradek.coordinator.group.modern.member import MemberState
from odradek.runtime.machine import BUG, Bug, TransitionTable


class Event(Enum):
    """Heartbeat, time-out or departure of a member. The values are the row titles in docs/groups.md."""

    CURRENT = "heartbeat at the target's epoch"
    RESUBSCRIBED = "heartbeat at the target's epoch, changed subscription"
    BEHIND = "heartbeat at an older epoch than the target's"
    NOT_REVOKED = "heartbeat without confirmation of the revocation"
    NOT_REVOKED_RESUBSCRIBED = "heartbeat without confirmation of the revocation, changed subscription"
    REVOKED = "heartbeat that confirms the revocation"
    REBALANCE_TIMEOUT = "rebalance time-out"
    STATIC_LEAVE = "static member leaves temporarily (epoch -2)"
    REPLACE = "static member joins with another member id"
    LEAVE = "member leaves, or its session expires"


class Action(Enum):
    """Action of the coordinator. The values are cells in docs/groups.md."""

    KEEP = "unchanged"
    TRIM = "revokes partitions of unsubscribed topics"
    TRIM_MORE = "also revokes partitions of unsubscribed topics"
    ADVANCE = "moves towards the target"
    RESTART = "moves towards the target, without partitions to revoke"
    FENCE = "FENCED_MEMBER_EPOCH"
    LEAVE_TEMPORARILY = "epoch -2, keeps its partitions"
    REPLACE = "new member id, same partitions"
    REMOVE = "removed"
    IGNORE = "ignored"


_S = MemberState
_KEEP, _TRIM, _MORE, _FENCE = Action.KEEP, Action.TRIM, Action.TRIM_MORE, Action.FENCE
_ADVANCE, _RESTART = Action.ADVANCE, Action.RESTART
_AWAY, _REPLACE, _REMOVE, _IGNORE, _BUG = Action.LEAVE_TEMPORARILY, Action.REPLACE, Action.REMOVE, Action.IGNORE, BUG

_COLUMNS: Final = (_S.STABLE, _S.UNREVOKED_PARTITIONS, _S.UNRELEASED_PARTITIONS, _S.UNKNOWN)
_ROWS: Final[dict[Event, tuple[Action | Bug, ...]]] = {
    #                                STABLE    UNREVOKED  UNRELEASED  UNKNOWN
    Event.CURRENT:                  (_KEEP,    _BUG,      _ADVANCE,   _BUG),
    Event.RESUBSCRIBED:             (_TRIM,    _BUG,      _ADVANCE,   _BUG),
    Event.BEHIND:                   (_ADVANCE, _BUG,      _ADVANCE,   _BUG),
    Event.NOT_REVOKED:              (_BUG,     _KEEP,     _BUG,       _FENCE),
    Event.NOT_REVOKED_RESUBSCRIBED: (_BUG,     _MORE,     _BUG,       _BUG),
    Event.REVOKED:                  (_BUG,     _ADVANCE,  _BUG,       _RESTART),
    Event.REBALANCE_TIMEOUT:        (_IGNORE,  _REMOVE,   _IGNORE,    _IGNORE),
    Event.STATIC_LEAVE:             (_AWAY,    _AWAY,     _AWAY,      _AWAY),
    Event.REPLACE:                  (_REPLACE, _REPLACE,  _REPLACE,   _REPLACE),
    Event.LEAVE:                    (_REMOVE,  _REMOVE,   _REMOVE,    _REMOVE),
}  # fmt: skip

MAY_LEAD_TO: Final[dict[Action, tuple[MemberState, ...]]] = {
    Action.TRIM: (_S.STABLE, _S.UNREVOKED_PARTITIONS),
    Action.TRIM_MORE: (_S.UNREVOKED_PARTITIONS,),
    Action.ADVANCE: (_S.STABLE, _S.UNREVOKED_PARTITIONS, _S.UNRELEASED_PARTITIONS),
    Action.RESTART: (_S.STABLE, _S.UNRELEASED_PARTITIONS),
}
"""Action -> possible next states. Other actions do not change the state."""

TRANSITIONS: Final[TransitionTable[MemberState, Event, Action]] = TransitionTable.of_rows(
    "consumer groups", MemberState, Event, _ROWS, columns=_COLUMNS, leads_to=MAY_LEAD_TO
)
look_up: Final = TRANSITIONS.look_up
"""The action for an event in a state. Raise TransitionBug for BUG."""
check_next: Final = TRANSITIONS.check_next
"""Raise TransitionBug unless the action of a cell may lead to this state."""
