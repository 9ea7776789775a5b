"""Read the partitions of one Fetch request, in one pass, within the byte limits of the request.

Partitions are read in order; each uses up a part of the byte limit. Until a partition has returned records, a first
batch that is larger than every limit is returned whole (KIP-74), so that a reader always makes progress. The pass does
no disk I/O:

1. The driver appends some partitions to `readings`.
2. `advance` stops at the first partition whose data is not in memory, and returns the pending read.
3. The driver awaits that read, and passes the result to `supply`.
4. `advance` continues with the next partition.
"""

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.broker.fetch.sessions import FetchSlot
from odradek.broker.partition.partition import Partition
from odradek.broker.partition.registry import Partitions
from odradek.broker.partition.waiters import Watermark
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from odradek.protocol.special_values import NO_LEADER_EPOCH, UNKNOWN_OFFSET
from odradek.storage.log.reads import ColdRead, ReadResult

# Defaults that all responses share. A response replaces such a value and never changes it.
NO_DIVERGENCE: Final = EpochEndOffset()
NO_LEADER_KNOWN: Final = LeaderIdAndEpoch()
NO_SNAPSHOT: Final = SnapshotId()
NO_REPLICA: Final = -1
ABORTED_MAX: Final = 10_000
"""Maximum aborted transactions that end in the records of one partition of a response. Their list takes about 10 ms.

The read ends after the last one, and the reader fetches the following records next.
"""


@frozen_dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of one Fetch request."""

    watermark: Watermark
    """The end of the log that the reader may see."""
    committed_only: bool
    """True if the isolation level is read_committed."""
    max_bytes: int
    min_bytes: int
    by_id: bool
    """True if the version of Fetch names topics by id (version 13, KIP-516)."""
    leader_only: bool
    """True for consumers with a version of Fetch before 11: they cannot read from followers (KIP-392)."""


@dataclass(slots=True, eq=False)
class Reading:
    """One partition of a pass.

    `partition` is None if `data` is complete without a read: an error, or a preferred read replica.
    """

    slot: FetchSlot
    data: PartitionData
    partition: Partition | None = None
    topic: str = ""
    error: ErrorCode = ErrorCode.NONE
    size: int = 0


@dataclass(slots=True)
class ColdFetch:
    """A read of data that is not in memory: `advance` stopped at it."""

    partition: Partition
    read: ColdRead


@dataclass(slots=True)
class FetchPass:
    """State of one pass over the partitions of a Fetch request."""

    limits: FetchLimits
    count: int
    """Number of partitions of the pass."""
    max_bytes: int
    """Maximum bytes of records of this pass: the limit of the request, or what is left of the broker's memory
    budget."""
    size: int = 0
    """Bytes of records read."""
    readings: list[Reading] = field(default_factory=list)
    """The partitions up to now, in reading order."""
    allowed: dict[str, bool] = field(default_factory=dict)
    """True for each topic of `readings` that the client may read, False for the other topics."""
    immediate: bool = False
    """True if a partition (an error, a divergence, a preferred replica) must not wait for min_bytes."""
    _next: int = field(default=0)

    @property
    def has_unread(self) -> bool:
        """True if `advance` has not read all of `readings`."""
        return self._next < len(self.readings)

    @property
    def is_complete(self) -> bool:
        """True if all partitions of the pass have been read."""
        return self._next >= self.count

    def advance(self) -> ColdFetch | None:
        """Read up to the next partition whose data is not in memory.

        Return its read; None at the end of `readings`.
        """
        while self._next < len(self.readings):
            reading = self.readings[self._next]
            partition = reading.partition
            if partition is None:
                self._next += 1
                continue
            try:
                result = self._read(reading, partition)
            except Refusal as refusal:
                self._refuse(reading, refusal)
                continue
            if isinstance(result, ColdRead):
                return ColdFetch(partition, result)
            self._next += 1
            if result is not None and result.records:
                self._take(reading, partition, result)
        return None

    def supply(self, result: ReadResult | Refusal) -> None:
        """Apply the result of the read that `advance` returned."""
        reading = self.readings[self._next]
        partition = reading.partition
        assert partition is not None
        try:
            # This broker may have lost the partition, or the leader role, during the read.
            self._check(reading.slot, partition)
            if isinstance(result, Refusal):
                raise result
        except Refusal as refusal:
            self._refuse(reading, refusal)
            return
        self._next += 1
        if result.records:
            self._take(reading, partition, result)

    @property
    def next_max_bytes(self) -> int:
        """Return the byte limit of the partition at which `advance` stopped."""
        return self.readings[self._next].slot.max_bytes

    @property
    def is_sufficient(self) -> bool:
        """True if the response need not wait for more bytes."""
        # If the memory budget is below min_bytes, a full budget suffices; a pass without any bytes waits even then.
        return self.immediate or self.size >= min(self.limits.min_bytes, max(self.max_bytes, 1))

    def _read(self, reading: Reading, partition: Partition) -> ReadResult | ColdRead | None:
        """Fill in the response without its records, and read them.

        Return None if the reader is at its end, or at its limit.
        """
        slot, data, limits = reading.slot, reading.data, self.limits
        self._check(slot, partition)
        log = partition.log
        offset = slot.fetch_offset
        data.high_watermark = high_watermark = log.high_watermark
        data.last_stable_offset = stable = log.last_stable_offset
        data.log_start_offset = log.log_start_offset
        if limits.committed_only:
            data.aborted_transactions = []
        if slot.last_fetched_epoch != NO_LEADER_EPOCH:
            diverging = divergence(partition, slot.last_fetched_epoch, slot.fetch_offset)
            if diverging is not None:
                data.diverging_epoch = diverging
                self.immediate = True
                return None
        if limits.watermark is Watermark.LOG_END:
            limit = log.log_end_offset
        else:
            limit = stable if limits.committed_only else high_watermark
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise Refusal(_error_outside(partition, offset))
        if limits.committed_only:
            end = log.end_of_aborted(offset, ABORTED_MAX)
            if end is not None and end < limit:
                limit, self.immediate = end, True
        capacity = min(slot.max_bytes, self.max_bytes - self.size)
        if offset >= limit or (capacity <= 0 and self.size):
            return None
        return partition.read(offset, max_bytes=max(capacity, 0), limit=limit, min_one_batch=not self.size)

    def _check(self, slot: FetchSlot, partition: Partition) -> None:
        if self.limits.leader_only:
            partition.check_leader(slot.current_leader_epoch)
        else:
            partition.check_readable(slot.current_leader_epoch)

    def _take(self, reading: Reading, partition: Partition, result: ReadResult) -> None:
        data = reading.data
        data.records = result.records
        reading.size = len(result.records)
        self.size += reading.size
        if self.limits.committed_only:
            aborted = partition.log.aborted_transactions(reading.slot.fetch_offset, result)
            data.aborted_transactions = [AbortedTransaction(producer_id, first) for producer_id, first in aborted]

    def _refuse(self, reading: Reading, refusal: Refusal) -> None:
        reading.data = error_partition_data(reading.slot.index, refusal.error)
        reading.error = refusal.error
        self.immediate = True
        self._next += 1


def _error_outside(partition: Partition, offset: int) -> ErrorCode:
    """Return the error for an offset outside of the log. OFFSET_OUT_OF_RANGE makes a consumer reset its offset."""
    if offset > partition.log.log_end_offset:
        if partition.follows:
            return ErrorCode.OFFSET_NOT_AVAILABLE  # a follower that is behind the leader (KIP-392)
        if partition.may_be_deposed:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # see `LeaderReplicas.is_confirmed`
    return ErrorCode.OFFSET_OUT_OF_RANGE


def divergence(partition: Partition, last_epoch: int, offset: int) -> EpochEndOffset | None:
    """Return the end of the last common leader epoch if a reader's log diverges; otherwise None (KIP-595).

    The reader's next offset is `offset`, and the leader epoch of its last record is `last_epoch`. Raise
    Refusal(OFFSET_OUT_OF_RANGE) if this log has no leader epoch at or below `last_epoch`, or if it starts after
    `offset`.
    """
    epoch, end_offset = partition.log.end_offset_for_epoch(last_epoch)
    if epoch == NO_LEADER_EPOCH or end_offset == UNKNOWN_OFFSET or offset < partition.log.log_start_offset:
        raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < last_epoch or end_offset < offset:
        return EpochEndOffset(epoch, end_offset)
    return None


def find_partition(partitions: Partitions, slot: FetchSlot) -> Partition:
    """Return the hosted partition of `slot`.

    Raise Refusal: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER or KAFKA_STORAGE_ERROR.
    """
    topic = slot.topic
    if isinstance(topic, UUID):
        return partitions.find_by_id(topic, slot.index)
    return partitions.find(topic, slot.index)


def empty_partition_data(index: int) -> PartitionData:
    """Return the response for one partition without records and with unknown offsets."""
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


def error_partition_data(index: int, error: ErrorCode) -> PartitionData:
    """Return the response for one partition with `error` and without records."""
    data = empty_partition_data(index)
    data.error_code = error
    return data
