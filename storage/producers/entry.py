"""The state of one producer in one partition, and the changes of it by one append. Pure.

An append works on a `ProducerUpdate`, which holds a copy. The copy is merged into the entry only after the bytes are in the log:
a snapshot must never be ahead of its own offset (KAFKA-6683).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from odradek.protocol.batch import NO_SEQUENCE, NO_TIMESTAMP, SEQUENCE_MAX, decrement_sequence
from odradek.protocol.errors import ErrorCode, Refusal

NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
CACHED_BATCHES_MAX = 5  # equals max.in.flight.requests.per.connection of idempotent producers


class Origin(enum.Enum):
    """The source of an append. It determines the checks."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft leader"
    REPLICATION = "replication"  # followers and recovery: update the state without checks


@dataclass(slots=True, frozen=True)
class CachedBatch:
    """One of the last batches of a producer: enough to recognise its repetition."""

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
    """A producer on this partition. `transaction_first_offset` is None while no transaction is open."""

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    transaction_first_offset: int | None = None
    batches: list[CachedBatch] = field(default_factory=list)
    seen_ms: int = field(default=0, compare=False)
    """When this broker last took something in from it, by its own clock; not in snapshots."""

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
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def add_batch(self, batch: CachedBatch) -> None:
        if len(self.batches) == CACHED_BATCHES_MAX:
            del self.batches[0]
        self.batches.append(batch)

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> CachedBatch | None:
        if epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None

    def merge(self, update: ProducerEntry) -> None:
        self.move_to_epoch(update.epoch)
        for batch in update.batches:
            self.add_batch(batch)
        self.coordinator_epoch = update.coordinator_epoch
        self.last_timestamp = update.last_timestamp
        self.transaction_first_offset = update.transaction_first_offset

    def expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.transaction_first_offset is None and now_ms - self.last_timestamp >= expiration_ms


@dataclass(slots=True)
class Verification:
    """A produce request whose transaction the coordinator is being asked about (KIP-890 part 1)."""

    guard: int
    lowest_sequence: int
    epoch: int
    supports_epoch_bump: bool
    seen_ms: int | None = None  # when expiry met it first: what its age counts from

    def note_attempt(self, sequence: int, epoch: int) -> None:
        """A retry must not find its own earlier attempt out of order (KAFKA-14920)."""
        if epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence


@dataclass(slots=True, frozen=True)
class EndMarker:
    """The content of a transaction marker batch."""

    abort: bool
    coordinator_epoch: int
    timestamp: int


@dataclass(slots=True, frozen=True)
class CompletedTransaction:
    """A transaction that a marker has ended; `marker_offset` is the offset of that marker."""

    producer_id: int
    first_offset: int
    marker_offset: int
    aborted: bool


class ProducerUpdate:
    """Checks and collects what one append does to one producer. Raises `Refusal`, and then nothing has changed."""

    __slots__ = ("_current", "_origin", "_verification", "entry", "started_at")

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
        self.started_at: list[int] = []  # first offsets of transactions that this append opens

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
        """Raises INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE."""
        if self._origin is not Origin.REPLICATION:
            self._check_epoch(epoch)
        if self._origin is Origin.CLIENT:
            self._check_sequence(epoch, first_sequence)
        entry = self.entry
        opened = entry.transaction_first_offset
        if opened is not None and not transactional and self._origin is not Origin.REPLICATION:
            raise Refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {entry.producer_id} writes outside of its transaction, which is open since offset {opened}",
            )
        entry.move_to_epoch(epoch)
        entry.add_batch(CachedBatch(last_sequence, last_offset, last_offset - first_offset, timestamp))
        entry.last_timestamp = timestamp
        if transactional and opened is None:
            entry.transaction_first_offset = first_offset
            self.started_at.append(first_offset)

    def marker(
        self, marker: EndMarker, *, epoch: int, offset: int, transaction_version: int
    ) -> CompletedTransaction | None:
        """None when no transaction was open: such a marker is written, and leaves no trace in index or LSO.

        Raises INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.entry
        if self._origin is not Origin.REPLICATION:
            self._check_marker(marker, epoch, transaction_version)
        entry.coordinator_epoch = marker.coordinator_epoch
        return self._end(epoch, offset, marker.timestamp, aborted=marker.abort)

    def empty_marker(self, *, epoch: int, offset: int, timestamp: int) -> CompletedTransaction | None:
        """Apply a marker batch whose record compaction has removed, and with it whether the transaction was committed.

        Compaction keeps the empty batch for the producer epoch. Kafka keeps it, too, but ignores it (ProducerAppendInfo.append):
        after a replay of the log the producer has no epoch, is not fenced, and the next compaction removes the batch.
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

    def _check_epoch(self, epoch: int) -> None:
        if epoch < self.entry.epoch:
            raise _stale_epoch(self.entry, epoch)

    def _check_marker(self, marker: EndMarker, epoch: int, transaction_version: int) -> None:
        entry = self.entry
        self._check_epoch(epoch)
        # KIP-1228: under TV2 the marker's epoch is one above that of the data it ends, so an equal epoch is a late marker
        # of an earlier transaction. Not so when nothing is open, then it is a retry of a marker already written
        # (KAFKA-19999), nor at the last epoch, which has no successor (KAFKA-20090).
        if (
            transaction_version >= 2
            and epoch == entry.epoch
            and entry.transaction_first_offset is not None
            and epoch != EPOCH_MAX
        ):
            raise _stale_epoch(entry, epoch)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise Refusal(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} of producer {entry.producer_id} is below {entry.coordinator_epoch}",
            )

    def _check_sequence(self, epoch: int, first_sequence: int) -> None:
        verification = self._verification
        current = self._current
        if verification is not None:
            if verification.supports_epoch_bump and first_sequence != 0 and not current.batches:
                raise _out_of_order(self.entry, epoch, first_sequence)  # KAFKA-18202
            if first_sequence > verification.lowest_sequence:
                raise _out_of_order(self.entry, epoch, first_sequence)
        if epoch != self.entry.epoch:
            if first_sequence != 0 and self.entry.epoch != NO_EPOCH:
                raise _out_of_order(self.entry, epoch, first_sequence)
            return
        last = self.entry.last_sequence if self.entry.batches else NO_SEQUENCE
        if not self.entry.batches and epoch == current.epoch:
            last = current.last_sequence
        follows = first_sequence == last + 1 or (last == SEQUENCE_MAX and first_sequence == 0)
        if not follows and current.epoch != NO_EPOCH:
            raise _out_of_order(self.entry, epoch, first_sequence)


def _stale_epoch(entry: ProducerEntry, epoch: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {epoch} of producer {entry.producer_id} is not above the one seen last, {entry.epoch}",
    )


def _out_of_order(entry: ProducerEntry, epoch: int, first_sequence: int) -> Refusal:
    return Refusal(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {entry.producer_id} (epoch {epoch}) sent sequence {first_sequence}, which does not follow",
    )
