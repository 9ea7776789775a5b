"""State of one producer in one partition, and its changes by one append (Kafka's `ProducerStateEntry`).

This module is pure. An append changes a copy of the entry in a `ProducerUpdate` (Kafka's `ProducerAppendInfo`). The
copy is merged into the entry after the bytes are in the log. So a snapshot never contains state from above its own
offset (KAFKA-6683).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.frozen import frozen_dataclass
from odradek.invariants.storage import PRODUCER_BATCHES
from odradek.protocol.batch import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    SEQUENCE_MAX,
    decrement_sequence,
    increment_sequence,
)
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from odradek.client_shares import Client

PRODUCER_EPOCH_MAX = 2**15 - 1
CACHED_BATCHES_MAX = 5
"""Batches per producer that are kept to detect duplicates.

An idempotent producer has at most five requests in flight per connection (max.in.flight.requests.per.connection).
"""


class Origin(enum.Enum):
    """Source of an append. It determines the checks of producer state."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft leader"
    REPLICATION = "replication"  # appends of followers, and recovery: the state is updated without checks


@frozen_dataclass(frozen=True, slots=True)
class CachedBatch:
    """One of the last batches of a producer. It identifies a duplicate."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    """State of one producer in one partition. `transaction_first_offset` is None if no transaction is open."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    transaction_first_offset: int | None = None
    batches: list[CachedBatch] = field(default_factory=list)
    seen_ms: int = field(default=0, compare=False)
    """Time of the last append or duplicate by the monotonic clock of this broker, in ms. It is not in snapshots.

    An entry that is loaded from a snapshot has the time of the load.
    """
    client: Client | None = field(default=None, compare=False)
    """Client that has added the producer to the leader. None on a follower and after a restart: logs do not have it."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1].offset_delta if self.batches else 0

    def move_to_epoch(self, epoch: int) -> None:
        """Set the epoch. Drop the cached batches if it changes: sequences begin again at 0."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def add_batch(self, batch: CachedBatch) -> None:
        """Add a batch to the cached batches, and drop the oldest one beyond CACHED_BATCHES_MAX."""
        if self.batches and batch.last_offset <= self.batches[-1].last_offset:
            raise PRODUCER_BATCHES.violated(producer_id=self.producer_id, last=self.batches[-1], added=batch)
        if len(self.batches) == CACHED_BATCHES_MAX:
            del self.batches[0]
        self.batches.append(batch)

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> CachedBatch | None:
        """Return the cached batch with that epoch and these sequences; None if there is none."""
        if epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None

    def follows(self, earlier: ProducerEntry) -> bool:
        """Return True if the first sequence of this entry follows the last of `earlier`, or if their epochs differ."""
        if self.epoch != earlier.epoch or not self.batches or not earlier.batches:
            return True
        return self.batches[0].first_sequence == increment_sequence(earlier.last_sequence, 1)

    def merge(self, update: ProducerEntry) -> None:
        """Apply the entry of a `ProducerUpdate`, after its bytes are in the log."""
        self.move_to_epoch(update.epoch)
        for batch in update.batches:
            self.add_batch(batch)
        self.coordinator_epoch = update.coordinator_epoch
        self.last_timestamp = update.last_timestamp
        self.transaction_first_offset = update.transaction_first_offset

    def expired(self, monotonic_ms: int, expiration_ms: int) -> bool:
        """Return True if producer.id.expiration.ms has passed since `seen_ms`, and no transaction is open.

        Kafka compares the timestamp of the last batch, which the client sets. A producer that sends records from two
        days ago, such as a copy of another topic, is then unknown after each check and each restart, and its retries
        are appended twice.
        """
        return self.transaction_first_offset is None and monotonic_ms - self.seen_ms >= expiration_ms


@dataclass(slots=True)
class Verification:
    """Verification of a transaction with its coordinator, for one or more Produce requests (KIP-890)."""

    guard: int
    lowest_sequence: int
    epoch: int
    supports_epoch_bump: bool
    seen_ms: int | None = None
    """Time of the first expiry run that found the verification, in ms. Its age counts from there."""

    def note_attempt(self, sequence: int, epoch: int) -> None:
        """Note the sequence of a further request, so that a retry of an earlier batch is in order (KAFKA-14920)."""
        if epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence


@frozen_dataclass(frozen=True, slots=True)
class EndMarker:
    """Content of a transaction marker."""

    abort: bool
    coordinator_epoch: int
    timestamp: int


@frozen_dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """Transaction that was ended by the marker at `marker_offset`."""

    producer_id: int
    first_offset: int
    marker_offset: int
    aborted: bool


class ProducerUpdate:
    """Changes of one producer by one append. Its methods check each batch before they apply it.

    After a `Refusal` the whole update is discarded, so nothing has changed.
    """

    __slots__ = ("_current", "_origin", "_verification", "entry", "opened_offsets")

    def __init__(
        self, producer_id: int, current: ProducerEntry | None, origin: Origin, verification: Verification | None
    ) -> None:
        self._current = current or ProducerEntry(producer_id)
        self._origin = origin
        self._verification = verification
        self.entry = ProducerEntry(
            producer_id,
            self._current.epoch,
            self._current.coordinator_epoch,
            self._current.last_timestamp,
            self._current.transaction_first_offset,
        )
        self.opened_offsets: list[int] = []  # first offsets of the transactions that this append opens

    def data_batch(
        self,
        *,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        transactional: bool,
    ) -> None:
        """Check and apply a batch of records.

        Raises:
            Refusal: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE.
        """
        if self._origin is not Origin.REPLICATION:
            self._check_epoch(epoch)
        if self._origin is Origin.CLIENT:
            self._check_sequence(epoch, first_sequence)
            self._check_is_transactional(transactional=transactional)
        entry = self.entry
        opened = entry.transaction_first_offset
        if opened is not None and not transactional and self._origin is not Origin.REPLICATION:
            raise Refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {entry.producer_id} sent a non-transactional batch; its transaction is open since {opened}",
            )
        entry.move_to_epoch(epoch)
        entry.add_batch(CachedBatch(last_sequence, last_offset, last_offset - first_offset, timestamp))
        entry.last_timestamp = timestamp
        if transactional and opened is None:
            entry.transaction_first_offset = first_offset
            self.opened_offsets.append(first_offset)

    def marker(
        self, marker: EndMarker, *, epoch: int, offset: int, transaction_version: int
    ) -> CompletedTransaction | None:
        """Check and apply a transaction marker. Return the transaction that it ends.

        Return None if no transaction is open: the marker is written, but changes neither index nor last stable offset.

        Raises:
            Refusal: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.entry
        if self._origin is not Origin.REPLICATION:
            self._check_marker(marker, epoch, transaction_version)
        entry.coordinator_epoch = marker.coordinator_epoch
        return self._end(epoch, offset, marker.timestamp, aborted=marker.abort)

    def empty_marker(self, *, epoch: int, offset: int, timestamp: int) -> CompletedTransaction | None:
        """Apply a marker whose record compaction has removed. Return the transaction that it ends, or None.

        Without the record it is unknown if the transaction was committed or aborted. Compaction keeps the empty batch
        for its producer epoch. Kafka keeps the batch but ignores it (`ProducerAppendInfo.append`): after a replay of
        the log the producer has no epoch and is not fenced, and the next compaction removes the batch.
        """
        return self._end(epoch, offset, timestamp, aborted=False)

    def _end(self, epoch: int, offset: int, timestamp: int, *, aborted: bool) -> CompletedTransaction | None:
        entry = self.entry
        opened = entry.transaction_first_offset
        entry.move_to_epoch(epoch)
        entry.last_timestamp = timestamp
        entry.transaction_first_offset = None
        if opened is None:
            return None
        return CompletedTransaction(entry.producer_id, opened, offset, aborted)

    def _check_is_transactional(self, *, transactional: bool) -> None:
        """Refuse a non-transactional batch of a producer with a transaction marker: its id has a transactional id.

        Such a producer sends transactional batches only. Kafka accepts the batch, and its unverified epoch
        fences the producer.
        """
        if not transactional and self._current.coordinator_epoch >= 0:
            raise Refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {self.entry.producer_id} is transactional and sent a non-transactional batch",
            )

    def _check_epoch(self, epoch: int) -> None:
        if epoch < self.entry.epoch:
            raise _stale_epoch(self.entry, epoch)

    def _check_marker(self, marker: EndMarker, epoch: int, transaction_version: int) -> None:
        entry = self.entry
        self._check_epoch(epoch)
        # KIP-1228: under TV2 the epoch of a marker is one above that of the data it ends. A marker with an equal epoch
        # is a delayed one of an earlier transaction, with two exceptions:
        # - No transaction is open: the marker is a retry of one already written (KAFKA-19999).
        # - The epoch is the last one, which has no successor (KAFKA-20090).
        if (
            transaction_version >= 2
            and epoch == entry.epoch
            and entry.transaction_first_offset is not None
            and epoch != PRODUCER_EPOCH_MAX
        ):
            raise _stale_epoch(entry, epoch)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise Refusal(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the marker for producer {entry.producer_id} has coordinator epoch {marker.coordinator_epoch}, "
                f"but epoch {entry.coordinator_epoch} is known",
            )

    def _check_sequence(self, epoch: int, first_sequence: int) -> None:
        verification = self._verification
        current = self._current
        if verification is not None:
            if verification.supports_epoch_bump and first_sequence != 0 and not current.batches:
                # KAFKA-18202: without cached batches, the first batch of a TV2 producer must have sequence 0.
                raise _out_of_order(self.entry, epoch, first_sequence)
            if first_sequence > verification.lowest_sequence:
                raise _out_of_order(self.entry, epoch, first_sequence)
        if epoch != self.entry.epoch:
            if first_sequence != 0 and self.entry.epoch != NO_PRODUCER_EPOCH:
                raise _out_of_order(self.entry, epoch, first_sequence)
            return
        last = self.entry.last_sequence if self.entry.batches else NO_SEQUENCE
        if not self.entry.batches and epoch == current.epoch:
            last = current.last_sequence
        follows = first_sequence == last + 1 or (last == SEQUENCE_MAX and first_sequence == 0)
        if not follows and current.epoch != NO_PRODUCER_EPOCH:
            raise _out_of_order(self.entry, epoch, first_sequence)


def _stale_epoch(entry: ProducerEntry, epoch: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {epoch} of producer {entry.producer_id} is stale; its last epoch is {entry.epoch}",
    )


def _out_of_order(entry: ProducerEntry, epoch: int, first_sequence: int) -> Refusal:
    return Refusal(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {entry.producer_id} with epoch {epoch} sent sequence {first_sequence}, which is not the next one",
    )
