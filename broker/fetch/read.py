"""The reading half of Fetch: one pass over the partitions of a plan, within the byte limits of the request.

Partitions are read in order with a shrinking budget. Until one of them has returned data, a first batch that is larger
than every limit is returned whole (KIP-74), so that no reader gets stuck. What is not in memory is not read here: the
pass stops at it (`advance`), and goes on when somebody who may wait has brought it in (`supply`).
"""

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.broker.fetch.sessions import FetchSlot
from odradek.broker.partition.partition import NO_EPOCH, Partition
from odradek.broker.partition.registry import Partitions
from odradek.broker.partition.waiters import Watermark
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from odradek.storage.log.reads import ColdRead, ReadResult

# Shared by all answers that have nothing to say there; replaced, never changed.
NO_DIVERGENCE: Final = EpochEndOffset()
NO_LEADER_KNOWN: Final = LeaderIdAndEpoch()
NO_SNAPSHOT: Final = SnapshotId()
NO_REPLICA: Final = -1
UNKNOWN_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What one request may see and take."""

    watermark: Watermark
    committed_only: bool
    max_bytes: int
    min_bytes: int
    by_id: bool
    leader_only: bool
    """Consumers before v11 know nothing of reading from followers (KIP-392)."""


@dataclass(slots=True, eq=False)
class Reading:
    """One partition of the pass. `partition` is None when it was refused before it was found."""

    slot: FetchSlot
    answer: PartitionData
    partition: Partition | None = None
    topic: str = ""
    error: ErrorCode = ErrorCode.NONE
    size: int = 0


@dataclass(slots=True)
class ColdFetch:
    """What `advance` has stopped at."""

    partition: Partition
    read: ColdRead


@dataclass(slots=True)
class FetchPass:
    """Read `readings` in order, `max_bytes` at most: what the request allows, or the broker's memory.

    `answer_now`: something has been found that must not wait for more bytes.
    """

    limits: FetchLimits
    readings: list[Reading]
    max_bytes: int
    size: int = 0
    answer_now: bool = False
    _next: int = field(default=0)

    def advance(self) -> ColdFetch | None:
        """Read on; None at the end."""
        while self._next < len(self.readings):
            reading = self.readings[self._next]
            partition = reading.partition
            if partition is None:
                self._next += 1
                continue
            try:
                found = self._read(reading, partition)
            except Refusal as refusal:
                self._refuse(reading, refusal)
                continue
            if isinstance(found, ColdRead):
                return ColdFetch(partition, found)
            self._next += 1
            if found is not None and found.records:
                self._take(reading, partition, found)
        return None

    def supply(self, found: ReadResult | Refusal) -> None:
        """The outcome of the cold read that `advance` has stopped at."""
        reading = self.readings[self._next]
        partition = reading.partition
        assert partition is not None
        try:
            # Time has passed: who does not lead any more says so, whatever it has read.
            self._check(reading.slot, partition)
            if isinstance(found, Refusal):
                raise found
        except Refusal as refusal:
            self._refuse(reading, refusal)
            return
        self._next += 1
        if found.records:
            self._take(reading, partition, found)

    @property
    def next_max_bytes(self) -> int:
        """The most that the partition at which `advance` has stopped may give."""
        return self.readings[self._next].slot.max_bytes

    @property
    def enough(self) -> bool:
        # Where memory is short, less than was asked for has to do; nothing at all is still worth waiting.
        return self.answer_now or self.size >= min(self.limits.min_bytes, max(self.max_bytes, 1))

    def _read(self, reading: Reading, partition: Partition) -> ReadResult | ColdRead | None:
        """What there is to read; None when there is nothing, with the answer filled in but for the records."""
        slot, answer, limits = reading.slot, reading.answer, self.limits
        self._check(slot, partition)
        log = partition.log
        offset = slot.fetch_offset
        answer.high_watermark = high_watermark = log.high_watermark
        answer.last_stable_offset = stable = log.last_stable_offset
        answer.log_start_offset = log.log_start_offset
        if limits.committed_only:
            answer.aborted_transactions = []
        if slot.last_fetched_epoch != NO_EPOCH:
            diverging = divergence(partition, slot.last_fetched_epoch, slot.fetch_offset)
            if diverging is not None:
                answer.diverging_epoch = diverging
                self.answer_now = True
                return None
        if limits.watermark is Watermark.LOG_END:
            limit = log.log_end_offset
        else:
            limit = stable if limits.committed_only else high_watermark
        if not log.log_start_offset <= offset <= log.log_end_offset:
            # What a follower does not have yet is no reason for a reader to give up its position (KIP-392).
            lags = offset > log.log_end_offset and partition.follows
            raise Refusal(ErrorCode.OFFSET_NOT_AVAILABLE if lags else ErrorCode.OFFSET_OUT_OF_RANGE)
        room = min(slot.max_bytes, self.max_bytes - self.size)
        if offset >= limit or (room <= 0 and self.size):
            return None
        return partition.read(offset, max_bytes=max(room, 0), limit=limit, min_one_batch=not self.size)

    def _check(self, slot: FetchSlot, partition: Partition) -> None:
        if self.limits.leader_only:
            partition.check_leader(slot.current_leader_epoch)
        else:
            partition.check_readable(slot.current_leader_epoch)

    def _take(self, reading: Reading, partition: Partition, found: ReadResult) -> None:
        answer = reading.answer
        answer.records = found.records
        reading.size = len(found.records)
        self.size += reading.size
        if self.limits.committed_only:
            aborted = partition.log.aborted_transactions(reading.slot.fetch_offset, found)
            answer.aborted_transactions = [AbortedTransaction(producer_id, first) for producer_id, first in aborted]

    def _refuse(self, reading: Reading, refusal: Refusal) -> None:
        reading.answer = refused(reading.slot.index, refusal.error)
        reading.error = refusal.error
        self.answer_now = True
        self._next += 1


def divergence(partition: Partition, last_epoch: int, offset: int) -> EpochEndOffset | None:
    """Where the log of a reader at `offset`, who has read `last_epoch` last, parts from this one, if it does (KIP-595, v12+).

    Raises Refusal(OFFSET_OUT_OF_RANGE): nothing is known of that epoch, or the log begins behind the offset.
    """
    epoch, end_offset = partition.log.end_offset_for_epoch(last_epoch)
    if epoch == NO_EPOCH or end_offset == UNKNOWN_OFFSET or offset < partition.log.log_start_offset:
        raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < last_epoch or end_offset < offset:
        return EpochEndOffset(epoch, end_offset)
    return None


def find(partitions: Partitions, slot: FetchSlot) -> Partition:
    """Raises Refusal: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR."""
    topic = slot.topic
    if isinstance(topic, UUID):
        return partitions.find_by_id(topic, slot.index)
    return partitions.find(topic, slot.index)


def unread(index: int) -> PartitionData:
    """An answer to be filled in."""
    return PartitionData(
        index,
        0,
        UNKNOWN_OFFSET,
        UNKNOWN_OFFSET,
        UNKNOWN_OFFSET,
        NO_DIVERGENCE,
        NO_LEADER_KNOWN,
        NO_SNAPSHOT,
        None,
        NO_REPLICA,
        b"",
    )


def refused(index: int, error: ErrorCode) -> PartitionData:
    """An answer that says `error` and nothing else."""
    answer = unread(index)
    answer.error_code = error
    return answer
