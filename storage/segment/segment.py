"""One segment: a log file and its three indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from odradek.storage.files import names
from odradek.storage.segment.index import (
    OFFSET_ENTRY_BYTES,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY_BYTES,
    AbortedTransaction,
    OffsetIndex,
    TimeIndex,
    TxnIndex,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.protocol.batch import BatchHeader
    from odradek.storage.config import LogConfig
    from odradek.storage.disk.port import Buffer, Disk, File
    from odradek.storage.producers.entry import CompletedTransaction

NO_TIMESTAMP = -1
RECENT_BATCHES_MAX = 32  # so many are found without looking into the file
TAIL_BYTES_MAX = 4096  # of each log kept in memory: followers that keep up are served without a look at the file
INDEX_ENTRIES_PENDING_MAX = 1024  # kept in memory only; bounds the work of a roll


class Segment:
    """Batches from `base_offset` on. Offsets are absolute; positions are bytes in the log file.

    The offset and time index are None while they have not been needed since start-up; `load_indexes` brings them.
    """

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, created_ms: int, create: bool, ending: str = ""
    ) -> None:
        """`ending` is what the names of all its files end with: that of one which is being made, or is gone."""
        self._disk = disk
        self._directory = directory
        self._ending = ending
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.file: File = disk.open(self.path(names.LOG_SUFFIX), create=create)
        self.size = self.file.size
        self.offset_index: OffsetIndex | None = OffsetIndex(base_offset) if create else None
        self.time_index: TimeIndex | None = TimeIndex(base_offset) if create else None
        self.txn_index = TxnIndex(base_offset)
        self._txn_file: File | None = None
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset
        self.first_batch_timestamp: int | None = None  # known once the first batch is written or read
        self.bytes_since_index_entry = 0
        self.recent: dict[int, int] = {}  # base offset -> position of the batches appended last: what most fetches want
        self.tail = b""  # the last bytes of the file, as far as they were appended since it was opened

    def path(self, suffix: str) -> str:
        return f"{self._directory}/{names.offset_file(self.base_offset, suffix)}{self._ending}"

    @property
    def largest_timestamp(self) -> int:
        """Newest record's timestamp, or since when the segment is known if its records have none."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.created_ms

    # -- writing --------------------------------------------------------------------------------------------------------

    def append(self, batches: Sequence[BatchHeader], buffers: Sequence[Buffer], index_interval_bytes: int) -> None:
        """Write the batches' bytes at the end, then index them. Raises OSError; the indexes then know nothing of them."""
        position = self.size
        self.file.write(position, *buffers)
        for batch in batches:
            position += self.note_batch(batch, position, index_interval_bytes)
        self._keep_tail(buffers, position - self.size)
        self.size = position
        index = self.offset_index
        if index is not None and len(index.keys) - index.persisted >= INDEX_ENTRIES_PENDING_MAX:
            self.write_indexes()

    def _keep_tail(self, buffers: Sequence[Buffer], size: int) -> None:
        """Of what the file has taken: whoever reads it here reads what the page cache would give, un-synced as it is there."""
        if size > TAIL_BYTES_MAX:
            self.tail = b""
        elif len(self.tail) + size > TAIL_BYTES_MAX:
            self.tail = b"".join(buffers)
        else:
            self.tail = b"".join((self.tail, *buffers))

    def forget_recent(self) -> None:
        """What was appended last is not what the file ends with any more."""
        self.recent.clear()
        self.tail = b""

    def note_batch(self, batch: BatchHeader, position: int, index_interval_bytes: int) -> int:
        """Bring the indexes up to a batch that lies at `position`; also how recovery rebuilds them. Returns its size."""
        assert self.offset_index is not None
        assert self.time_index is not None
        size = batch.size
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp = batch.max_timestamp
            self.offset_of_max_timestamp = batch.last_offset
        if self.first_batch_timestamp is None:
            self.first_batch_timestamp = batch.max_timestamp
        if self.bytes_since_index_entry > index_interval_bytes:
            self.offset_index.append(batch.last_offset, position, batch.base_offset)
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
            self.bytes_since_index_entry = 0
        self.bytes_since_index_entry += size
        recent = self.recent
        recent[batch.base_offset] = position
        if len(recent) > RECENT_BATCHES_MAX:
            del recent[next(iter(recent))]
        return size

    def add_aborted(self, entry: AbortedTransaction) -> None:
        """Write an aborted transaction to `.txnindex`, which is created by the first one. Raises OSError."""
        if self._txn_file is None:
            self._txn_file = self._disk.open(self.path(names.TXN_INDEX_SUFFIX), create=True)
        self._txn_file.write(self._txn_file.size, entry.encode())
        self.txn_index.append(entry)

    def write_indexes(self) -> None:
        """Append the entries that only memory has to the offset and time index files, creating them when absent."""
        if self.offset_index is None or self.time_index is None:
            return  # not touched since start-up
        self._write_index(names.OFFSET_INDEX_SUFFIX, self.offset_index, OFFSET_ENTRY_BYTES)
        self._write_index(names.TIME_INDEX_SUFFIX, self.time_index, TIME_ENTRY_BYTES)

    def _write_index(self, suffix: str, index: OffsetIndex | TimeIndex, entry_bytes: int) -> None:
        file = self._disk.open(self.path(suffix), create=True)
        try:
            end = index.persisted * entry_bytes
            if file.size > end:
                file.truncate(end)
            file.write(end, index.encode(index.persisted))
            index.persisted = len(index)
        finally:
            file.close()

    def seal(self) -> None:
        """The segment gets no more batches: the time index ends with the newest timestamp, files have their final size."""
        self.tail = b""
        if self.time_index is not None:
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self.write_indexes()
        self._close_txn_file()

    def full_for(self, config: LogConfig, last_offset: int) -> bool:
        """Whether an index has no room left, or `last_offset` is too far from the base offset for one."""
        assert self.offset_index is not None
        assert self.time_index is not None
        # One slot of the time index is kept for the entry that `seal` adds.
        return (
            last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or len(self.offset_index.keys) >= config.segment_index_bytes // OFFSET_ENTRY_BYTES
            or len(self.time_index.keys) >= config.segment_index_bytes // TIME_ENTRY_BYTES - 1
        )

    async def sync(self, *, indexes: bool) -> None:
        """Make the log durable, with `indexes` also the index files (a sealed segment is not looked at again)."""
        await self.file.sync()
        if not indexes:
            return
        for suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX):
            if self._disk.exists(self.path(suffix)):
                file = self._disk.open(self.path(suffix), create=False)
                try:
                    await file.sync()
                finally:
                    file.close()

    def sync_now(self) -> None:
        self.file.sync_now()
        for suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX):
            if self._disk.exists(self.path(suffix)):
                file = self._disk.open(self.path(suffix), create=False)
                file.sync_now()
                file.close()

    # -- reading the index files ------------------------------------------------------------------------------------------

    def load_indexes(self, offset_index: Buffer, time_index: Buffer) -> None:
        """Take the content of the index files. Raises CorruptIndex."""
        offsets = OffsetIndex(self.base_offset, bytes(offset_index))
        self.time_index = TimeIndex(self.base_offset, bytes(time_index))
        self.offset_index = offsets

    def unload_indexes(self) -> None:
        """Let go of index entries that the files have, too."""
        offsets, times = self.offset_index, self.time_index
        if offsets and times and offsets.persisted == len(offsets) and times.persisted == len(times):
            self.offset_index = self.time_index = None

    # -- cutting, removing ------------------------------------------------------------------------------------------------

    def truncate(self, position: int, offset: int) -> None:
        """Cut log and indexes: `position` is where the batch of `offset` begins. The caller sets what depends on the rest."""
        assert self.offset_index is not None
        assert self.time_index is not None
        self.file.truncate(position)
        self.size = position
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.forget_recent()
        if len(self.txn_index):
            self.txn_index.truncate_to(offset)
            self.rewrite_txn_index()
        self.write_indexes()

    def reset_indexes(self) -> None:
        """Forget everything derived from the log file; recovery is going to derive it again."""
        self.offset_index = OffsetIndex(self.base_offset)
        self.time_index = TimeIndex(self.base_offset)
        self.txn_index = TxnIndex(self.base_offset)
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset
        self.first_batch_timestamp = None
        self.bytes_since_index_entry = 0
        self.forget_recent()
        self._close_txn_file()
        self._disk.remove(self.path(names.TXN_INDEX_SUFFIX))

    def rewrite_txn_index(self) -> None:
        self._close_txn_file()
        file = self._txn_file = self._disk.open(self.path(names.TXN_INDEX_SUFFIX), create=True)
        file.truncate(0)
        file.write(0, self.txn_index.encode())

    def rename_away(self) -> list[str]:
        """Give all files the ending of deleted ones; their new paths. Reads under way go on."""
        return self.rename(names.DELETED_SUFFIX)

    def rename(self, ending: str) -> list[str]:
        """Give all files another ending; their new paths. The log comes first (see `odradek.storage.recovery.sweep`)."""
        old = [self.path(suffix) for suffix in names.SEGMENT_SUFFIXES]
        self._ending = ending
        renamed = []
        for path, suffix in zip(old, names.SEGMENT_SUFFIXES, strict=True):
            if self._disk.exists(path):
                self._disk.rename(path, self.path(suffix))
                renamed.append(self.path(suffix))
        return renamed

    def remove(self) -> None:
        """Close and remove all files."""
        self.close()
        for suffix in names.SEGMENT_SUFFIXES:
            self._disk.remove(self.path(suffix))

    def close(self) -> None:
        self.tail = b""
        self._close_txn_file()
        self.file.close()

    def _close_txn_file(self) -> None:
        if self._txn_file is not None:
            self._txn_file.close()
            self._txn_file = None


def should_roll(
    segment: Segment,
    config: LogConfig,
    *,
    incoming: int,
    last_offset: int,
    newest_timestamp: int,
    now_ms: int,
    jitter_ms: int,
) -> bool:
    """Whether an append of `incoming` bytes that ends at `last_offset` has to open a new segment."""
    if segment.size > config.segment_bytes - incoming or segment.full_for(config, last_offset):
        return True
    if segment.size == 0:
        return False
    first = segment.first_batch_timestamp
    waited_ms = newest_timestamp - first if first is not None and first >= 0 else now_ms - segment.created_ms
    return waited_ms > config.roll_ms - jitter_ms


def settle_aborted(segment: Segment, completed: CompletedTransaction, last_stable_offset: int) -> None:
    """Index the transaction in the segment that holds its marker, if it was aborted. Raises OSError."""
    if completed.aborted:
        segment.add_aborted(
            AbortedTransaction(
                completed.producer_id, completed.first_offset, completed.marker_offset, last_stable_offset
            )
        )


def roll_jitter_ms(config: LogConfig, directory: str, base_offset: int) -> int:
    """How much earlier than segment.ms this segment is rolled: spread over segment.jitter.ms, the same at every call."""
    if config.segment_jitter_ms <= 0:
        return 0
    return crc32(f"{directory}/{base_offset}".encode()) % min(config.segment_jitter_ms, config.roll_ms + 1)
