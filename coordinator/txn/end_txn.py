"""The end of a transaction: by its producer (classic and TV2), by the broker, and after the markers.

kafka-facts 5.6 to 5.10 and 5.13. Two generations live side by side; which one a request belongs to is said by its API
version, which one an abort by the broker belongs to by the finalized feature level.
"""

from odradek.coordinator.txn.changes import next_identity, to_complete, to_fenced, to_prepared
from odradek.coordinator.txn.commands import (
    TV2,
    AbortTimedOut,
    CompleteTransaction,
    EndTransaction,
    ProducerIdentity,
    Reply,
    SendMarkers,
    Situation,
    again,
)
from odradek.coordinator.txn.epochs import is_highest, last_client_epoch
from odradek.coordinator.txn.ports import Marker
from odradek.coordinator.txn.records import to_record
from odradek.coordinator.txn.state import Transaction, TxnState
from odradek.coordinator.txn.transitions import Event, Outcome, look_up
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.machine import Refuse, To
from odradek.runtime.shard import Again, Decision


def decide_end(command: EndTransaction, now: Situation) -> Decision[ProducerIdentity] | Again:
    """Prepare to commit or abort; the reply is the identity that the producer uses next. Raises Refusal."""
    txn = now.txn
    if txn is None:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if command.client_version >= TV2:
        # Before the identity: a TV2 producer has been told its next identity at Prepare, which this id takes on only at
        # Complete. Tested the other way round, a commit followed at once by an empty abort fenced itself
        # (KAFKA-18464, KAFKA-18660).
        if now.pending:
            return again(command.transactional_id)
        event = _tv2_event(command, txn)
    else:
        if command.producer_id != txn.producer_id:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if command.producer_epoch != txn.producer_epoch:  # a higher one too (KAFKA-9600)
            raise Refusal(ErrorCode.PRODUCER_FENCED)
        if now.pending:
            return again(command.transactional_id)
        event = Event.COMMIT if command.commit else Event.ABORT
    action = look_up(txn.state, event)
    if action is Outcome.AGAIN:
        return again(command.transactional_id)
    if isinstance(action, Refuse):
        raise Refusal(action.error)
    if not isinstance(action, To):
        return Decision(ProducerIdentity(txn.producer_id, txn.producer_epoch))
    if is_highest(txn.producer_epoch) and command.commit and command.client_version >= TV2:
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "no producer epoch is left to commit with")
    prepared = to_prepared(
        txn,
        action.state,
        client_version=command.client_version,
        take_producer_id=now.take_producer_id,
        now_ms=now.now_ms,
    )
    return _prepare(prepared, now, next_identity(prepared))


def abort_by_broker(txn: Transaction, now: Situation, reply: Reply) -> Decision[Reply]:
    """Abort an ongoing transaction so that its producer cannot go on: the epoch rises with it in both generations.

    The raised epoch is told to nobody. TV2 raises it once, as for any end (not twice: KAFKA-19367).
    """
    if now.feature_level >= TV2:
        prepared = to_prepared(
            txn,
            TxnState.PREPARE_ABORT,
            client_version=TV2,
            take_producer_id=now.take_producer_id,
            now_ms=now.now_ms,
        )
    else:
        prepared = to_fenced(txn, now_ms=now.now_ms)
    return _prepare(prepared, now, reply)


def decide_time_out(command: AbortTimedOut, now: Situation) -> Decision[None]:
    """Abort the transaction that the sweep saw, if it is still the same one. What is missed comes in the next sweep."""
    txn = now.txn
    if txn is None or now.uncommitted or txn.producer_id != command.producer_id:
        return Decision(None)
    action = look_up(txn.state, Event.TIME_OUT)
    if not isinstance(action, To) or txn.start_ms != command.start_ms or not txn.timed_out(now.now_ms):
        return Decision(None)
    return abort_by_broker(txn, now, None)


def decide_complete(command: CompleteTransaction, now: Situation) -> Decision[None]:
    """All markers are written. Told for a transaction that is no longer the prepared one, it changes nothing."""
    txn = now.txn
    if txn is None or (txn.producer_id, txn.producer_epoch) != (command.producer_id, command.producer_epoch):
        return Decision(None)
    action = look_up(txn.state, Event.MARKERS_DONE)
    if not isinstance(action, To):
        return Decision(None)
    after = to_complete(txn, action.state, now_ms=now.now_ms)
    record = to_record(after, now.feature_level)
    # Lost with this broker, it is found out again from the Prepare record; what comes next for the id waits for both.
    return Decision(None, records=(record,), keys=(command.transactional_id,), deferred=True)


def send_markers(txn: Transaction, coordinator_epoch: int) -> SendMarkers:
    """The markers of a prepared transaction: its own identity and the client's version, the epoch of who sends them."""
    assert txn.state.is_prepared, txn.state
    marker = Marker(
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        coordinator_epoch=coordinator_epoch,
        commit=txn.state is TxnState.PREPARE_COMMIT,
        partitions=tuple(txn.partitions),
        transaction_version=txn.client_version,
    )
    return SendMarkers(txn.transactional_id, marker)


def _prepare(prepared: Transaction, now: Situation, reply: Reply) -> Decision[Reply]:
    return Decision(
        reply,
        records=(to_record(prepared, now.feature_level),),
        effects=(send_markers(prepared, now.coordinator_epoch),),
        keys=(prepared.transactional_id,),
    )


def _tv2_event(command: EndTransaction, txn: Transaction) -> Event:
    """First time or retry? Raises Refusal for a request that can be neither.

    A retry is told by the identity that its first attempt led to: the epoch one higher, or (after an overflow) a new
    producer id with epoch 0.
    """
    stored, given = txn.producer_epoch, command.producer_epoch
    same_id = command.producer_id == txn.producer_id
    overflow_retry = command.producer_id == txn.prev_producer_id and given == last_client_epoch() and stored == 0
    if not same_id and not overflow_retry:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # Only an end under TV2 raises the epoch. After a classic one the epoch before is that of a producer which has lost
    # the id to a classic client: taken for a retry, as Kafka does, it would be handed the other's identity
    # (docs/decisions/0012).
    ended_classic = txn.state.is_complete and txn.client_version < TV2
    if (stored == given + 1 and not ended_classic) or (overflow_retry and txn.state.is_complete):
        return Event.COMMIT_TV2_RETRY if command.commit else Event.ABORT_TV2_RETRY
    if given != stored:
        raise Refusal(ErrorCode.PRODUCER_FENCED)
    return Event.COMMIT_TV2 if command.commit else Event.ABORT_TV2
