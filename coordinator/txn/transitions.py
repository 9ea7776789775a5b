"""Define the state machine of transactions as one table: the outcome of each event in each state.

Three rules apply before the table:

- Identity: producer id and epoch are checked first. For AddPartitionsToTxn and TV2 EndTxn they are checked after the
  pending check (KAFKA-18464).
- Pending: if the last record of the id is not committed, or its markers are being written, the command waits.
  Exceptions are verification, partitions that are added after an uncommitted Complete or Ongoing record, and refusals
  of a classic EndTxn with another identity. So a TV2 EndTxn uses the Prepare rows only after the completion was
  stopped, because a newer coordinator exists.
- Serial: a decision is one step. Kafka raises the epoch in memory first (PrepareEpochFence), and ends the transaction
  in a second step. In Odradek a request of the fenced producer comes before or after the single step. So
  PrepareEpochFence is never stored, and an event in this state is a bug, as in Kafka.

The state Dead lasts from the write of a tombstone until its commit. Then the id is unknown.
"""

from enum import Enum
from typing import Final, TypeAlias

from odradek.coordinator.txn.state import VALID_PREVIOUS_STATES
from odradek.protocol.errors import ErrorCode
from odradek.protocol.txn_state import TxnState
from odradek.runtime.machine import BUG, Bug, Refuse, To, TransitionTable, check_successors


class Event(Enum):
    """Event of a transactional id: a checked request, a broker command, or the end of the markers."""

    INIT = "InitProducerId"
    INIT_KEEP = "InitProducerId, KeepPreparedTxn"
    ADD = "add partitions"
    VERIFY = "verify partitions"
    COMMIT = "EndTxn commit, classic"
    ABORT = "EndTxn abort, classic"
    COMMIT_TV2 = "EndTxn commit, TV2"
    COMMIT_TV2_RETRY = "EndTxn commit, TV2, retry"
    ABORT_TV2 = "EndTxn abort, TV2"
    ABORT_TV2_RETRY = "EndTxn abort, TV2, retry"
    TIME_OUT = "time-out"
    MARKERS_DONE = "all markers written"
    EXPIRE = "id expired"

    __hash__ = object.__hash__  # by identity: the hash of Enum is slow Python code


class Outcome(Enum):
    """Outcome of an event without a record and without a refusal."""

    RESPOND = "response from the state"
    """No record is written: a retry of a completed request, a read, or a broker command that is no longer needed."""
    RETRY = "CONCURRENT_TRANSACTIONS"
    """The command waits until a record of the id is appended or committed; after a bounded time it is refused."""


Action: TypeAlias = To[TxnState] | Refuse | Outcome
"""Outcome of an event. `To` writes a record with its state."""

_S = TxnState
_RESPOND, _RETRY, _BUG = Outcome.RESPOND, Outcome.RETRY, BUG
_INVALID = Refuse(ErrorCode.INVALID_TXN_STATE)
_FENCED = Refuse(ErrorCode.PRODUCER_FENCED)
_EMPTY, _ONGOING = To(_S.EMPTY), To(_S.ONGOING)
_PREPARE_COMMIT, _PREPARE_ABORT = To(_S.PREPARE_COMMIT), To(_S.PREPARE_ABORT)
_COMPLETE_COMMIT, _COMPLETE_ABORT, _DEAD = To(_S.COMPLETE_COMMIT), To(_S.COMPLETE_ABORT), To(_S.DEAD)

# InitProducerId in Ongoing aborts the transaction first. Then it waits, as in the Prepare states. With KeepPreparedTxn
# it keeps the transaction, which then refuses partitions and a classic end (`Transaction.is_kept`).
# Columns: one per state, in the order of their values in the log.
_ROWS: Final[dict[Event, tuple[Action | Bug, ...]]] = {
    # Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead PrepareEpochFence
    Event.INIT:             (_EMPTY,         _PREPARE_ABORT,  _RETRY,           _RETRY,          _EMPTY,         _EMPTY,         _RETRY,   _BUG),
    Event.INIT_KEEP:        (_EMPTY,         _ONGOING,        _RETRY,           _RETRY,          _EMPTY,         _EMPTY,         _RETRY,   _BUG),
    Event.ADD:              (_ONGOING,       _ONGOING,        _RETRY,           _RETRY,          _ONGOING,       _ONGOING,       _RETRY,   _BUG),
    Event.VERIFY:           (_RESPOND,       _RESPOND,        _RETRY,           _RETRY,          _RESPOND,       _RESPOND,       _RESPOND, _BUG),
    Event.COMMIT:           (_INVALID,       _PREPARE_COMMIT, _RETRY,           _INVALID,        _RESPOND,       _INVALID,       _RETRY,   _BUG),
    Event.ABORT:            (_INVALID,       _PREPARE_ABORT,  _INVALID,         _RETRY,          _INVALID,       _RESPOND,       _RETRY,   _BUG),
    Event.COMMIT_TV2:       (_INVALID,       _PREPARE_COMMIT, _FENCED,          _FENCED,         _INVALID,       _INVALID,       _RETRY,   _BUG),
    Event.COMMIT_TV2_RETRY: (_FENCED,        _FENCED,         _RETRY,           _INVALID,        _RESPOND,       _INVALID,       _RETRY,   _BUG),
    Event.ABORT_TV2:        (_PREPARE_ABORT, _PREPARE_ABORT,  _FENCED,          _FENCED,         _PREPARE_ABORT, _PREPARE_ABORT, _RETRY,   _BUG),
    Event.ABORT_TV2_RETRY:  (_FENCED,        _FENCED,         _INVALID,         _RETRY,          _INVALID,       _RESPOND,       _RETRY,   _BUG),
    Event.TIME_OUT:         (_RESPOND,       _PREPARE_ABORT,  _RESPOND,         _RESPOND,        _RESPOND,       _RESPOND,       _RESPOND, _BUG),
    Event.MARKERS_DONE:     (_RESPOND,       _RESPOND,        _COMPLETE_COMMIT, _COMPLETE_ABORT, _RESPOND,       _RESPOND,       _RESPOND, _BUG),
    Event.EXPIRE:           (_DEAD,          _RESPOND,        _RESPOND,         _RESPOND,        _DEAD,          _DEAD,          _RESPOND, _BUG),
}  # fmt: skip

TRANSITIONS: Final[TransitionTable[TxnState, Event, Action]] = TransitionTable.of_rows(
    "transactions", TxnState, Event, _ROWS
)
check_successors(TRANSITIONS, VALID_PREVIOUS_STATES)
look_up: Final = TRANSITIONS.look_up
"""Return the outcome of an event in a state. Raise TransitionBug if it is BUG."""
