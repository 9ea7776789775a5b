"""Derive the next value of a transaction for each new state, and check that the change is valid.

The functions return a new value. Their callers have decided that the change is allowed.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from odradek.coordinator.txn.commands import TV2
from odradek.coordinator.txn.epochs import is_exhausted, is_highest, next_epoch
from odradek.coordinator.txn.identities import follows, raised
from odradek.coordinator.txn.ports import TopicPartition
from odradek.coordinator.txn.state import Partitions, ProducerIdentity, Transaction
from odradek.invariants.coordinator import TXN_CLIENT_IDENTITY, TXN_IDENTITY, TXN_PARTITIONS, TXN_TIMES
from odradek.protocol.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from odradek.protocol.txn_state import TxnState

NO_IDENTITY: Final = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def to_empty(
    txn: Transaction,
    identity: ProducerIdentity,
    last_epoch: int,
    *,
    timeout_ms: int,
    client_id: str | None,
    now_ms: int,
) -> Transaction:
    """Return the transaction after InitProducerId: Empty, with `identity` for the producer."""
    # As in Kafka, the previous producer id of a new transactional id is its first one.
    previous_id = identity.producer_id if txn.is_new else txn.producer_id
    return replace(
        txn,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        last_producer_epoch=last_epoch,
        prev_producer_id=previous_id,
        timeout_ms=timeout_ms,
        state=TxnState.EMPTY,
        partitions={},
        start_ms=NO_TIMESTAMP,
        update_ms=now_ms,
        client_id=client_id,
    )


def to_kept(
    txn: Transaction,
    client: ProducerIdentity,
    last_epoch: int,
    *,
    timeout_ms: int,
    client_id: str | None,
    now_ms: int,
) -> Transaction:
    """Return the ongoing transaction after InitProducerId with KeepPreparedTxn: `client` is its owner now."""
    return replace(
        txn,
        next_producer_id=client.producer_id,
        next_producer_epoch=client.producer_epoch,
        last_producer_epoch=last_epoch,
        prev_producer_id=txn.client_identity.producer_id,
        timeout_ms=timeout_ms,
        update_ms=now_ms,
        client_id=client_id,
    )


def to_ongoing(
    txn: Transaction, added: tuple[TopicPartition, ...], *, client_version: int, client_id: str | None, now_ms: int
) -> Transaction:
    """Return the transaction with the partitions `added`. The first partition starts the transaction time-out."""
    begins = txn.state is not TxnState.ONGOING
    partitions: Partitions = {} if begins else txn.partitions
    return replace(
        txn,
        state=TxnState.ONGOING,
        partitions={**partitions, **dict.fromkeys(added)},
        start_ms=now_ms if begins else txn.start_ms,
        update_ms=now_ms,
        prev_producer_id=txn.producer_id,
        client_version=client_version,
        client_id=client_id or txn.client_id,
    )


def to_prepared(
    txn: Transaction, state: TxnState, *, client_version: int, take_producer_id: Callable[[], int], now_ms: int
) -> Transaction:
    """Return the transaction after EndTxn or a TV2 abort by the broker: PrepareCommit or PrepareAbort.

    With TV2 the producer epoch rises here, so batches with the former epoch are refused. If the epoch is exhausted, the
    record also has the identity of the next transaction, which becomes valid at Complete. Since Kafka 4.3 this holds
    for the abort by the broker, too (KAFKA-20090).

    The identity of the client of a kept transaction rises, too (KIP-939):

    1. The transaction 42/100 was kept: its client has 42/101. It sends EndTxn, which the network delays.
    2. It sends EndTxn again. The markers have 42/101. The transaction completes.
    3. The client begins the next transaction. With 42/101, the delayed EndTxn would end it. So the client has 42/102.
    """
    ongoing = txn.state is TxnState.ONGOING
    epoch, last_epoch, after_end = txn.producer_epoch, txn.last_producer_epoch, NO_IDENTITY
    client = txn.client_identity
    if client_version >= TV2:
        # A stored epoch of 32767 comes from a classic abort by the broker. Only its abort can follow.
        assert not is_highest(epoch) or state is TxnState.PREPARE_ABORT, "no producer epoch is left for a commit"
        last_epoch = client.producer_epoch
        if txn.is_kept or is_exhausted(client.producer_epoch):
            after_end = raised(client, take_producer_id)
        epoch = next_epoch(epoch)
    else:
        assert not txn.is_kept, "a classic end loses the identity of the client"
    return replace(
        txn,
        state=state,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        prev_producer_id=client.producer_id,
        next_producer_id=after_end.producer_id,
        next_producer_epoch=after_end.producer_epoch,
        partitions=txn.partitions if ongoing else {},
        start_ms=txn.start_ms if ongoing else now_ms,
        update_ms=now_ms,
        client_version=client_version,
    )


def to_fencing_abort(txn: Transaction, *, now_ms: int) -> Transaction:
    """Return the transaction after a classic abort by the broker: PrepareAbort with a raised epoch (KAFKA-6119).

    Kafka raises the epoch in memory before the append. It must record a failed append, so that the next attempt does
    not raise the epoch again (KAFKA-9666). In Odradek a refused append changes nothing, so the next attempt begins with
    the same epoch.
    """
    return replace(
        to_prepared(
            txn, TxnState.PREPARE_ABORT, client_version=0, take_producer_id=lambda: NO_PRODUCER_ID, now_ms=now_ms
        ),
        producer_epoch=next_epoch(txn.producer_epoch),
        last_producer_epoch=NO_PRODUCER_EPOCH,
    )


def to_complete(txn: Transaction, state: TxnState, *, now_ms: int) -> Transaction:
    """Return the transaction after all markers are written. The next identity becomes that of the id."""
    client = txn.client_identity
    return replace(
        txn,
        state=state,
        producer_id=client.producer_id,
        producer_epoch=client.producer_epoch,
        # A retry of EndTxn has the identity before that of the Prepare record (`had_last_epoch`).
        prev_producer_id=txn.prev_producer_id if txn.has_next_identity else txn.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_PRODUCER_EPOCH,
        partitions={},
        update_ms=now_ms,
    )


def check_step(before: Transaction, after: Transaction) -> None:
    """Check that `after` is a valid next value for the id, before its record is written.

    Raise InvariantViolation for TXN_IDENTITY, TXN_CLIENT_IDENTITY, TXN_PARTITIONS or TXN_TIMES.
    """
    state = after.state
    is_ongoing = before.state is TxnState.ONGOING
    same_id = after.producer_id == before.producer_id
    identity = after.own_identity == before.own_identity
    kept = (after.next_producer_id, after.next_producer_epoch) != (before.next_producer_id, before.next_producer_epoch)
    client = not after.has_next_identity
    partitions = not after.partitions
    times = after.start_ms != NO_TIMESTAMP and after.timeout_ms == before.timeout_ms
    if state is TxnState.EMPTY:
        identity = identity or after.producer_epoch == 0 or follows(after.own_identity, before.own_identity)
        times = after.start_ms == NO_TIMESTAMP
    elif state is TxnState.ONGOING:
        partitions = not is_ongoing or before.partitions.keys() <= after.partitions.keys()
        if is_ongoing and kept:
            client = follows(after.client_identity, before.client_identity)
            partitions = after.partitions == before.partitions
            times = after.timeout_ms == before.timeout_ms or after.never_times_out
        elif is_ongoing:
            client = not before.is_kept
        times = times and (not is_ongoing or after.start_ms == before.start_ms)
    elif state.is_prepared:
        identity = identity or (same_id and after.producer_epoch == next_epoch(before.producer_epoch))
        if after.client_version >= TV2:
            client_before = before.client_identity
            identity = identity and after.last_producer_epoch == client_before.producer_epoch
            if before.is_kept or is_exhausted(client_before.producer_epoch):
                client = after.has_next_identity and follows(after.client_identity, client_before)
        else:
            client = client and not before.is_kept
        if is_ongoing:
            partitions = after.partitions == before.partitions
            times = times and after.start_ms == before.start_ms
    else:
        assert state.is_complete, f"{state.kafka_name}: this state is never written"
        identity = after.own_identity == before.client_identity
        times = times and after.start_ms == before.start_ms
    if not identity:
        raise TXN_IDENTITY.violated(before=before, after=after)
    if not client:
        raise TXN_CLIENT_IDENTITY.violated(before=before, after=after)
    if not partitions:
        raise TXN_PARTITIONS.violated(before=before, after=after)
    if not times:
        raise TXN_TIMES.violated(before=before, after=after)
