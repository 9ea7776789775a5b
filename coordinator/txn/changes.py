"""The next value of a transaction for each state it can be taken to, and the test that every such step must pass.

Each function returns a new value and judges nothing: whether the step is due is decided before.
"""

from collections.abc import Callable
from dataclasses import replace

from odradek.coordinator.txn.commands import TV2, ProducerIdentity
from odradek.coordinator.txn.epochs import NO_EPOCH, is_exhausted, is_highest, raised
from odradek.coordinator.txn.ports import TopicPartition
from odradek.coordinator.txn.state import Partitions, Transaction, TxnState
from odradek.protocol.batch import NO_PRODUCER_ID, NO_TIMESTAMP


def to_empty(
    txn: Transaction,
    identity: ProducerIdentity,
    last_epoch: int,
    *,
    timeout_ms: int,
    client_id: str | None,
    now_ms: int,
) -> Transaction:
    """InitProducerId: nothing runs, and the producer has `identity`."""
    # An id that is decided about for the first time is taken to have had its new producer id already.
    before = identity.producer_id if txn.is_new else txn.producer_id
    return replace(
        txn,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        last_producer_epoch=last_epoch,
        prev_producer_id=before,
        timeout_ms=timeout_ms,
        state=TxnState.EMPTY,
        partitions={},
        start_ms=NO_TIMESTAMP,
        update_ms=now_ms,
        client_id=client_id,
    )


def to_ongoing(
    txn: Transaction, added: tuple[TopicPartition, ...], *, client_version: int, client_id: str | None, now_ms: int
) -> Transaction:
    """Partitions join. The clock of the time-out starts with the first of them and is not set back by more."""
    starts = txn.state is not TxnState.ONGOING
    partitions: Partitions = {} if starts else txn.partitions
    return replace(
        txn,
        state=TxnState.ONGOING,
        partitions={**partitions, **dict.fromkeys(added)},
        start_ms=now_ms if starts else txn.start_ms,
        update_ms=now_ms,
        prev_producer_id=txn.producer_id,
        client_version=client_version,
        client_id=client_id or txn.client_id,
    )


def to_prepared(
    txn: Transaction, state: TxnState, *, client_version: int, take_producer_id: Callable[[], int], now_ms: int
) -> Transaction:
    """EndTxn, or a TV2 abort by the broker. Under TV2 the epoch rises here, and with it the client's right to write.

    An exhausted epoch takes the producer id of the next transaction along (from 4.3 on the fencing abort too,
    KAFKA-20090): it comes into force when the transaction is complete.
    """
    runs = txn.state is TxnState.ONGOING
    epoch, last_epoch, next_id = txn.producer_epoch, txn.last_producer_epoch, NO_PRODUCER_ID
    if client_version >= TV2:
        # 32767 is met only in logs in which a classic fence was the last bump: its abort must still go through.
        assert not is_highest(epoch) or state is TxnState.PREPARE_ABORT, "no epoch is left to commit with"
        last_epoch = epoch
        next_id = take_producer_id() if is_exhausted(epoch) else NO_PRODUCER_ID
        epoch = raised(epoch)
    return replace(
        txn,
        state=state,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        prev_producer_id=txn.producer_id,
        next_producer_id=next_id,
        partitions=txn.partitions if runs else {},
        start_ms=txn.start_ms if runs else now_ms,
        update_ms=now_ms,
        client_version=client_version,
    )


def to_fenced(txn: Transaction, *, now_ms: int) -> Transaction:
    """The classic abort by the broker: the epoch that the producer knows ends with the transaction (KAFKA-6119).

    Kafka raises the epoch in memory before the append and must remember when that append failed, lest the next attempt
    raises it again until none is left (KAFKA-9666). Here a refused append has changed nothing: the next attempt starts
    from the same epoch by itself.
    """
    return replace(
        to_prepared(
            txn, TxnState.PREPARE_ABORT, client_version=0, take_producer_id=lambda: NO_PRODUCER_ID, now_ms=now_ms
        ),
        producer_epoch=raised(txn.producer_epoch),
        last_producer_epoch=NO_EPOCH,
    )


def to_complete(txn: Transaction, state: TxnState, *, now_ms: int) -> Transaction:
    """All markers are written. A producer id that was kept ready comes into force with epoch 0."""
    rotated = txn.next_producer_id != NO_PRODUCER_ID
    return replace(
        txn,
        state=state,
        producer_id=txn.next_producer_id if rotated else txn.producer_id,
        producer_epoch=0 if rotated else txn.producer_epoch,
        prev_producer_id=txn.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions={},
        update_ms=now_ms,
    )


def next_identity(txn: Transaction) -> ProducerIdentity:
    """What the producer must use after the end of `txn`: what the Complete record will hold."""
    if txn.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdentity(txn.next_producer_id, 0)
    return ProducerIdentity(txn.producer_id, txn.producer_epoch)


def check_step(before: Transaction, after: Transaction) -> None:
    """Assert what must hold between two values of one id, whoever made them. Called before anything is written."""
    same_id = after.producer_id == before.producer_id
    same_epoch = after.producer_epoch == before.producer_epoch
    state = after.state
    if state is TxnState.EMPTY:
        is_next = same_id and after.producer_epoch == before.producer_epoch + 1
        assert (same_id and same_epoch) or is_next or after.producer_epoch == 0, "Empty: epoch"
        assert not after.partitions, "Empty: partitions"
        assert after.start_ms == NO_TIMESTAMP, "Empty: start"
        return
    assert after.timeout_ms == before.timeout_ms, f"{state.shown}: time-out"
    assert after.start_ms != NO_TIMESTAMP, f"{state.shown}: start"
    if state is TxnState.ONGOING:
        assert same_id, "Ongoing: producer id"
        assert same_epoch, "Ongoing: epoch"
        assert before.state is not TxnState.ONGOING or before.partitions.keys() <= after.partitions.keys(), "Ongoing"
    elif state.is_prepared:
        assert same_id, "Prepare: producer id"
        assert same_epoch or after.producer_epoch == raised(before.producer_epoch), "Prepare: epoch"
        assert after.partitions == (before.partitions if before.state is TxnState.ONGOING else {}), (
            "Prepare: partitions"
        )
        assert before.state is not TxnState.ONGOING or after.start_ms == before.start_ms, "Prepare: start"
        assert after.client_version < TV2 or after.last_producer_epoch == before.producer_epoch, "Prepare: last epoch"
    else:
        assert state.is_complete, f"{state.shown} is never written"
        assert after.start_ms == before.start_ms, "Complete: start"
        assert not after.partitions, "Complete: partitions"
        rotated = after.producer_epoch == 0 and after.prev_producer_id == before.producer_id
        assert (same_id and same_epoch) or (rotated and after.last_producer_epoch == before.last_producer_epoch)
