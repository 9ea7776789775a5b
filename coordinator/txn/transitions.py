"""The transaction machine as one table: {(state, event): To | Answer | Again | Refuse | BUG}.

Read together with three rules that come before the table (core.py and its parts):

- *Who asks*: producer id and epoch are tested first, or (add, and TV2 EndTxn: KAFKA-18464) after the pending test.
- *Pending*: an id whose last record is not committed, or whose markers are being written, lets nobody in but
  verification, partitions that join behind a written Complete or Ongoing, and (classic EndTxn) refusals of the wrong
  producer. Prepare* rows are thus met by TV2 EndTxn only once
  the completion has been given up, because a newer coordinator exists.
- *Serial*: a decision is one step. Kafka raises the epoch in memory (PrepareEpochFence, pending) and then ends the
  transaction in a second step; what can come between the two there (an EndTxn of the fenced producer) comes either
  before or after here. So PrepareEpochFence is never a stored state: as in Kafka, meeting it is a bug.

Dead is an id whose tombstone is written but not committed: the id is free again when it is.
"""

from enum import Enum
from typing import Final, TypeAlias

from odradek.coordinator.txn.state import MAY_FOLLOW, TxnState
from odradek.protocol.errors import ErrorCode
from odradek.runtime.machine import BUG, Bug, Refuse, To, TransitionTable, check_successors


class Event(Enum):
    INIT = "InitProducerId"
    ADD = "add partitions"
    VERIFY = "verify partitions"
    COMMIT = "EndTxn commit, classic"
    ABORT = "EndTxn abort, classic"
    COMMIT_TV2 = "EndTxn commit, TV2"
    COMMIT_TV2_RETRY = "EndTxn commit, TV2, again"
    ABORT_TV2 = "EndTxn abort, TV2"
    ABORT_TV2_RETRY = "EndTxn abort, TV2, again"
    TIME_OUT = "time-out"
    MARKERS_DONE = "all markers written"
    EXPIRE = "id expired"

    __hash__ = object.__hash__  # members are one of a kind, and Enum's own hash is Python


class Outcome(Enum):
    RESPOND = "response from the state"
    """Nothing is written: a retry of what is done, a read, or a broker's own command that has lost its reason."""
    AGAIN = "CONCURRENT_TRANSACTIONS"
    """Waits until something about the id is committed; told CONCURRENT_TRANSACTIONS when that takes too long."""


Action: TypeAlias = To[TxnState] | Refuse | Outcome
"""`To`: a record with this state is written."""

_S = TxnState
_RESPOND, _AGAIN, _BUG = Outcome.RESPOND, Outcome.AGAIN, BUG
_INVALID = Refuse(ErrorCode.INVALID_TXN_STATE)
_FENCED = Refuse(ErrorCode.PRODUCER_FENCED)
_EMPTY, _ONGOING = To(_S.EMPTY), To(_S.ONGOING)
_PREPARE_COMMIT, _PREPARE_ABORT = To(_S.PREPARE_COMMIT), To(_S.PREPARE_ABORT)
_COMPLETE_COMMIT, _COMPLETE_ABORT, _DEAD = To(_S.COMPLETE_COMMIT), To(_S.COMPLETE_ABORT), To(_S.DEAD)

# InitProducerId on Ongoing aborts the transaction first and then waits like one that met Prepare*.
# Columns: one per state, in the order of the codes of the log.
_ROWS: Final[dict[Event, tuple[Action | Bug, ...]]] = {
    #                        Empty           Ongoing          PrepareCommit     PrepareAbort     CompleteCommit  CompleteAbort   Dead      PrepareEpochFence
    Event.INIT:             (_EMPTY,         _PREPARE_ABORT,  _AGAIN,           _AGAIN,          _EMPTY,         _EMPTY,         _AGAIN,   _BUG),
    Event.ADD:              (_ONGOING,       _ONGOING,        _AGAIN,           _AGAIN,          _ONGOING,       _ONGOING,       _AGAIN,   _BUG),
    Event.VERIFY:           (_RESPOND,       _RESPOND,        _AGAIN,           _AGAIN,          _RESPOND,       _RESPOND,       _RESPOND, _BUG),
    Event.COMMIT:           (_INVALID,       _PREPARE_COMMIT, _AGAIN,           _INVALID,        _RESPOND,       _INVALID,       _AGAIN,   _BUG),
    Event.ABORT:            (_INVALID,       _PREPARE_ABORT,  _INVALID,         _AGAIN,          _INVALID,       _RESPOND,       _AGAIN,   _BUG),
    Event.COMMIT_TV2:       (_INVALID,       _PREPARE_COMMIT, _FENCED,          _FENCED,         _INVALID,       _INVALID,       _AGAIN,   _BUG),
    Event.COMMIT_TV2_RETRY: (_FENCED,        _FENCED,         _AGAIN,           _INVALID,        _RESPOND,       _INVALID,       _AGAIN,   _BUG),
    Event.ABORT_TV2:        (_PREPARE_ABORT, _PREPARE_ABORT,  _FENCED,          _FENCED,         _PREPARE_ABORT, _PREPARE_ABORT, _AGAIN,   _BUG),
    Event.ABORT_TV2_RETRY:  (_FENCED,        _FENCED,         _INVALID,         _AGAIN,          _INVALID,       _RESPOND,       _AGAIN,   _BUG),
    Event.TIME_OUT:         (_RESPOND,       _PREPARE_ABORT,  _RESPOND,         _RESPOND,        _RESPOND,       _RESPOND,       _RESPOND, _BUG),
    Event.MARKERS_DONE:     (_RESPOND,       _RESPOND,        _COMPLETE_COMMIT, _COMPLETE_ABORT, _RESPOND,       _RESPOND,       _RESPOND, _BUG),
    Event.EXPIRE:           (_DEAD,          _RESPOND,        _RESPOND,         _RESPOND,        _DEAD,          _DEAD,          _RESPOND, _BUG),
}  # fmt: skip

TRANSITIONS: Final[TransitionTable[TxnState, Event, Action]] = TransitionTable.of_rows(
    "transactions", TxnState, Event, _ROWS
)
check_successors(TRANSITIONS, MAY_FOLLOW)
look_up: Final = TRANSITIONS.look_up
"""The action for an event in a state. Raise TransitionBug for BUG."""
