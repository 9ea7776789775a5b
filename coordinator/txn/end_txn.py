"""Decide the end of a transaction: EndTxn (classic and TV2), the abort by the broker, and the completion.

The API version of a request selects classic or TV2 (KIP-890). For an abort by the broker, the finalized level of
`transaction.version` decides.
"""

from odradek.coordinator.txn.changes import to_complete, to_fencing_abort, to_prepared
from odradek.coordinator.txn.commands import (
    TV2,
    AbortTimedOut,
    CompleteTransaction,
    DecisionContext,
    EndTransaction,
    Reply,
    SendMarkers,
    retry_after,
)
from odradek.coordinator.txn.epochs import is_highest
from odradek.coordinator.txn.identities import check_client, had_last_epoch
from odradek.coordinator.txn.ports import Marker
from odradek.coordinator.txn.records import to_record
from odradek.coordinator.txn.state import ProducerIdentity, Transaction
from odradek.coordinator.txn.transitions import Event, Outcome, look_up
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.txn_state import TxnState
from odradek.runtime.machine import Refuse, To
from odradek.runtime.shard import Decision, RetryAfter


def decide_end(command: EndTransaction, context: DecisionContext) -> Decision[ProducerIdentity] | RetryAfter:
    """Prepare the commit or abort of a transaction. The reply is the next identity of the producer.

    Raises:
        Refusal: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, UNKNOWN_SERVER_ERROR if no epoch is
            left for a commit, COORDINATOR_LOAD_IN_PROGRESS if no producer id is available, or UNSUPPORTED_VERSION for a
            classic end of a kept transaction.
    """
    txn = context.txn
    if txn is None:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    given = ProducerIdentity(command.producer_id, command.producer_epoch)
    if command.client_version >= TV2:
        # The pending check comes before the identity check (KAFKA-18464, KAFKA-18660):
        # 1. A TV2 producer commits, and receives its next identity at Prepare.
        # 2. It aborts an empty transaction with that identity, before the Complete record is written.
        # 3. The stored identity is still the former one, so an identity check would fence the producer.
        if context.pending:
            return retry_after(command.transactional_id)
        event = _tv2_event(txn, given, commit=command.commit)
    else:
        check_client(txn, given)  # it refuses a higher epoch, too (KAFKA-9600)
        if context.pending:
            return retry_after(command.transactional_id)
        if txn.is_kept:
            # The response of a classic EndTxn has no field for the next identity of the client.
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, "a kept transaction is ended by EndTxn version 5 and later")
        event = Event.COMMIT if command.commit else Event.ABORT
    action = look_up(txn.state, event)
    if action is Outcome.RETRY:
        return retry_after(command.transactional_id)
    if isinstance(action, Refuse):
        raise Refusal(action.error)
    if not isinstance(action, To):
        return Decision(txn.client_identity)
    if is_highest(txn.producer_epoch) and command.commit and command.client_version >= TV2:
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "no producer epoch is left for a commit")
    prepared = to_prepared(
        txn,
        action.state,
        client_version=command.client_version,
        take_producer_id=context.take_producer_id,
        now_ms=context.now_ms,
    )
    return _prepare(prepared, context, prepared.client_identity)


def abort_by_broker(txn: Transaction, context: DecisionContext, reply: Reply) -> Decision[Reply]:
    """Abort an ongoing transaction with a raised producer epoch, so that its producer is fenced.

    No producer receives the raised epoch. TV2 raises it once, as for every end of a transaction (KAFKA-19367). A kept
    transaction ends with TV2 at every level, because a classic end would lose the identity of its client.
    """
    if context.feature_level >= TV2 or txn.is_kept:
        prepared = to_prepared(
            txn,
            TxnState.PREPARE_ABORT,
            client_version=TV2,
            take_producer_id=context.take_producer_id,
            now_ms=context.now_ms,
        )
    else:
        prepared = to_fencing_abort(txn, now_ms=context.now_ms)
    return _prepare(prepared, context, reply)


def decide_time_out(command: AbortTimedOut, context: DecisionContext) -> Decision[None]:
    """Abort the timed-out transaction if it is still ongoing.

    The next sweep finds it again if the last record of its id is not committed.
    """
    txn = context.txn
    if txn is None or context.uncommitted or txn.producer_id != command.producer_id:
        return Decision(None)
    action = look_up(txn.state, Event.TIME_OUT)
    if not isinstance(action, To) or txn.start_ms != command.start_ms or not txn.timed_out(context.now_ms):
        return Decision(None)
    return abort_by_broker(txn, context, None)


def decide_complete(command: CompleteTransaction, context: DecisionContext) -> Decision[None]:
    """Write the Complete record after all markers are written.

    Do nothing if another transaction has been prepared since.
    """
    txn = context.txn
    if txn is None or txn.own_identity != (command.producer_id, command.producer_epoch):
        return Decision(None)
    action = look_up(txn.state, Event.MARKERS_DONE)
    if not isinstance(action, To):
        return Decision(None)
    after = to_complete(txn, action.state, now_ms=context.now_ms)
    record = to_record(after, context.feature_level)
    # If the record is lost with this broker, the next coordinator sends the markers again, because of the Prepare
    # record. The next record of the id is committed after both.
    return Decision(None, records=(record,), keys=(command.transactional_id,), deferred=True)


def send_markers(txn: Transaction, coordinator_epoch: int) -> SendMarkers:
    """Return the effect that writes the markers of a prepared transaction."""
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


def _prepare(prepared: Transaction, context: DecisionContext, reply: Reply) -> Decision[Reply]:
    return Decision(
        reply,
        records=(to_record(prepared, context.feature_level),),
        effects=(send_markers(prepared, context.coordinator_epoch),),
        keys=(prepared.transactional_id,),
    )


def _tv2_event(txn: Transaction, given: ProducerIdentity, *, commit: bool) -> Event:
    """Return the event of a TV2 request from a client with the identity `given`: a first attempt or a retry.

    For a retry, the client's stored identity is the one that the first attempt has led to: an epoch that is one higher,
    or, after an epoch overflow, a new producer id with epoch 0.

    Raises:
        Refusal: The request can be neither: INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED.
    """
    client = txn.client_identity
    had_overflow = had_last_epoch(txn, given)
    if not had_overflow and given.producer_id not in {client.producer_id, txn.producer_id}:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # Only an end with TV2 raises the epoch. After a classic end, the previous epoch is that of another producer, which
    # a classic client has fenced. Kafka takes its request for a retry and returns the identity of the classic client
    # (docs/decisions/0012).
    ended_classic = txn.state.is_complete and txn.client_version < TV2
    had_previous_epoch = client == (given.producer_id, given.producer_epoch + 1) and not ended_classic
    # Without a next identity, the id of a prepared transaction has changed at InitProducerId, not at its end.
    rotated_at_end = txn.state.is_complete or (txn.state.is_prepared and txn.has_next_identity)
    if had_previous_epoch or (had_overflow and rotated_at_end):
        return Event.COMMIT_TV2_RETRY if commit else Event.ABORT_TV2_RETRY
    if given != client:
        raise Refusal(ErrorCode.PRODUCER_FENCED)
    return Event.COMMIT_TV2 if commit else Event.ABORT_TV2
