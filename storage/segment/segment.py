"""Read and write one segment of a log: the `.log` file and its three indexes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from odradek.invariants.storage import OFFSET_INDEX_RANGE
from odradek.protocol.batch import HEADER_BYTES, NO_TIMESTAMP, read_header
from odradek.protocol.errors import Malformed
from odradek.storage.batches.scan import Scan
from odradek.storage.disk.port import ResourcesExhausted
from odradek.storage.files import names
from odradek.storage.segment.index import (
    INDEX_INTERVAL_BYTES_MAX,
    OFFSET_ENTRY_BYTES,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY_BYTES,
    TXN_ENTRY_BYTES,
    AbortedTransaction,
    CorruptIndex,
    OffsetIndex,
    TimeIndex,
    TxnIndex,
    equal_entries,
)
from odradek.storage.segment.index_files import read_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from odradek.protocol.batch import BatchHeader
    from odradek.protocol.schema import Buffer
    from odradek.storage.config import LogConfig
    from odradek.storage.disk.port import Disk, File
    from odradek.storage.producers.entry import CompletedTransaction

RECENT_BATCHES_MAX = 32
"""Batches per segment whose position is kept in memory. A fetch from one of them needs no index look-up."""
RECENT_BYTES_MAX = 4096
"""Maximum bytes per log in memory: the end of the active segment. In-sync followers read them without a file access."""
SEGMENT_BYTES_MAX = 2**31 - 1
"""Maximum bytes of a log file that could not be rolled. Index entries have positions of four bytes, as in Kafka."""
UNINDEXED_BYTES_MAX = 64 * 1024
"""Maximum bytes of an active segment without index files after a clean shutdown. A start reads them in one step."""
INDEX_ENTRIES_PENDING_MAX = 1024
"""Maximum entries per index that are not in the index file. It bounds the work of a roll."""


class Segment:
    """Segment with the batches from `base_offset` on. Offsets are absolute; positions are bytes in the log file.

    `offset_index` and `time_index` are None until the first read after start-up needs them; `load_indexes` sets them.
    """

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, created_ms: int, create: bool, file_suffix: str = ""
    ) -> None:
        """Open or create the log file.

        `file_suffix` is added to all file names, such as `.cleaned` during compaction.
        """
        self._disk = disk
        self._directory = directory
        self._file_suffix = file_suffix
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.file: File = disk.open(self.path(names.LOG_SUFFIX), create=create)
        self.size = self.file.size
        self.offset_index: OffsetIndex | None = OffsetIndex(base_offset) if create else None
        self.time_index: TimeIndex | None = TimeIndex(base_offset) if create else None
        self.txn_index = TxnIndex(base_offset)
        self._txn_file: File | None = None
        self._txn_file_behind = False
        """True if `.txnindex` lacks entries of `txn_index`, because no descriptor or memory was left."""
        self._derives_txn_index = False
        """True while recovery derives `txn_index` from the whole log file. `.txnindex` stays unchanged meanwhile."""
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset
        self.first_batch_timestamp: int | None = None  # None until the first batch was written or read
        self.bytes_since_index_entry = 0
        self.recent_positions: dict[int, int] = {}
        """Base offset -> position, for the batches appended last. Most fetches start at one of them."""
        self.recent_bytes = b""
        """Last bytes of the file. Only bytes appended since it was opened are kept."""

    def path(self, suffix: str) -> str:
        """Return the path of the file of this segment with that suffix."""
        return f"{self._directory}/{names.offset_file(self.base_offset, suffix)}{self._file_suffix}"

    @property
    def largest_timestamp(self) -> int:
        """Largest timestamp of the records in ms; the time the segment was opened if they have none."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.created_ms

    # ---- write ------------------------------------------------------------------------------------------------------

    def append(self, batches: Sequence[BatchHeader], buffers: Sequence[Buffer], index_interval_bytes: int) -> None:
        """Write the batches at the end of the log file, and add them to the indexes.

        Raises:
            ResourcesExhausted: No memory was left. The segment and its files are unchanged.
            OSError: The write of the log file fails, and the segment is unchanged; or a write of an index file fails.
        """
        position = self.size
        try:
            self.file.write(position, *buffers)
        except ResourcesExhausted:
            if self.file.size > position:
                self.file.truncate(position)
            raise
        for batch in batches:
            position += self.note_batch(batch, position, index_interval_bytes)
        self._keep_recent_bytes(buffers, position - self.size)
        self.size = position
        index = self.offset_index
        if index is not None and len(index.keys) - index.persisted >= INDEX_ENTRIES_PENDING_MAX:
            with suppress(ResourcesExhausted):  # the entries stay pending, and the next append tries again
                self.write_indexes()

    def _keep_recent_bytes(self, buffers: Sequence[Buffer], size: int) -> None:
        """Keep the end of the file in memory. As with the page cache, a read may return bytes that are not durable."""
        if size > RECENT_BYTES_MAX:
            self.recent_bytes = b""
        elif len(self.recent_bytes) + size > RECENT_BYTES_MAX:
            self.recent_bytes = b"".join(buffers)
        else:
            self.recent_bytes = b"".join((self.recent_bytes, *buffers))

    def drop_recent(self) -> None:
        """Drop the recent positions and bytes, because the file no longer ends with them."""
        self.recent_positions.clear()
        self.recent_bytes = b""

    def note_batch(self, batch: BatchHeader, position: int, index_interval_bytes: int) -> int:
        """Add a batch at `position` to the indexes. Return its size. Recovery rebuilds the indexes by it, too.

        An interval above INDEX_INTERVAL_BYTES_MAX has the effect of that maximum.
        """
        assert self.offset_index is not None
        assert self.time_index is not None
        size = batch.size
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp = batch.max_timestamp
            self.offset_of_max_timestamp = batch.last_offset
        if self.first_batch_timestamp is None:
            self.first_batch_timestamp = batch.max_timestamp
        unindexed = self.bytes_since_index_entry
        if unindexed > index_interval_bytes or unindexed > INDEX_INTERVAL_BYTES_MAX:
            self.offset_index.append(batch.last_offset, position, batch.base_offset)
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
            self.bytes_since_index_entry = 0
        self.bytes_since_index_entry += size
        recent = self.recent_positions
        recent[batch.base_offset] = position
        if len(recent) > RECENT_BATCHES_MAX:
            del recent[next(iter(recent))]
        return size

    def index_if_aborted(self, completed: CompletedTransaction, last_stable_offset: int) -> None:
        """Add the transaction to `.txnindex` if it was aborted. Its marker is in this segment.

        Raises:
            OSError: The write fails.
        """
        if completed.aborted:
            self.add_aborted(
                AbortedTransaction(
                    completed.producer_id, completed.first_offset, completed.marker_offset, last_stable_offset
                )
            )

    def add_aborted(self, entry: AbortedTransaction) -> None:
        """Write an aborted transaction to `.txnindex`. The first one creates the file.

        If no descriptor or memory is left, the entry stays in memory. The next entry, or `seal`, writes it. Recovery
        reads the markers above the recovery start, so a failure of the process loses no entry.

        Raises:
            OSError: The write fails.
        """
        if self._derives_txn_index:
            self.txn_index.append(entry)
            return
        try:
            if self._txn_file_behind:
                self.rewrite_txn_index()
            if self._txn_file is None:
                self._txn_file = self._disk.open(self.path(names.TXN_INDEX_SUFFIX), create=True)
            self._txn_file.write(self._txn_file.size, entry.encode())
        except ResourcesExhausted:
            self._txn_file_behind = True
        self.txn_index.append(entry)

    def write_indexes(self) -> None:
        """Append pending entries to the offset and time index files. Create absent files."""
        if self.offset_index is None or self.time_index is None:
            return  # not loaded since start-up, so nothing is pending
        self._write_index(names.OFFSET_INDEX_SUFFIX, self.offset_index, OFFSET_ENTRY_BYTES)
        self._write_index(names.TIME_INDEX_SUFFIX, self.time_index, TIME_ENTRY_BYTES)

    def _write_index(self, suffix: str, index: OffsetIndex | TimeIndex, entry_bytes: int) -> None:
        file = self._disk.open(self.path(suffix), create=True)
        try:
            end, content = index.persisted * entry_bytes, index.encode(index.persisted)
            if file.size > end:
                # Recovery has rebuilt the index. The file mostly has the same content, and a truncation is expensive.
                if bytes(file.read(end, file.size - end)) == content:
                    content = b""
                else:
                    file.truncate(end)
            if content:
                file.write(end, content)
            index.persisted = len(index)
        finally:
            file.close()

    def seal(self) -> None:
        """Write the pending index entries of a segment that receives no more batches.

        The time index gets an entry for the largest timestamp.
        """
        self.recent_bytes = b""
        if self.time_index is not None:
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self.write_indexes()
        if self._txn_file_behind:
            self.rewrite_txn_index()
        self._close_txn_file()

    @property
    def needs_no_index_files(self) -> bool:
        """True if a start reads the whole segment anyway: it has no index entry, and at most UNINDEXED_BYTES_MAX."""
        no_entry = self.offset_index is not None and len(self.offset_index) == 0
        return no_entry and self.size <= UNINDEXED_BYTES_MAX

    def write_pending(self) -> None:
        """Write all pending entries of the three indexes. Create absent offset and time index files.

        Raises:
            ResourcesExhausted: No descriptor or memory is left. The call can be repeated.
            OSError: A disk operation fails.
        """
        self.write_indexes()
        if self._txn_file_behind:
            self.rewrite_txn_index()

    def write_last(self) -> None:
        """Write the pending index entries of the active segment at a clean shutdown.

        A segment without index entries gets no index files, but existing ones are corrected. The time index gets no
        entry for the largest timestamp, because a start reads the batches behind the last entries.
        """
        suffixes = (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
        if not self.needs_no_index_files or any(self._disk.exists(self.path(suffix)) for suffix in suffixes):
            self.write_indexes()
        if self._txn_file_behind:
            self.rewrite_txn_index()
        self._close_txn_file()

    def can_exceed_limits(self, config: LogConfig, incoming: int, last_offset: int) -> bool:
        """Return True if an append of `incoming` bytes is possible beyond segment.bytes and segment.ms."""
        return not self.full_for(config, last_offset) and self.size + incoming <= SEGMENT_BYTES_MAX

    def full_for(self, config: LogConfig, last_offset: int) -> bool:
        """Return True if an index is full, or `last_offset` is too far from the base offset for an index entry."""
        assert self.offset_index is not None
        assert self.time_index is not None
        # One entry of the time index is reserved for `seal`.
        return (
            last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or len(self.offset_index.keys) >= config.segment_index_bytes // OFFSET_ENTRY_BYTES
            or len(self.time_index.keys) >= config.segment_index_bytes // TIME_ENTRY_BYTES - 1
        )

    async def sync(self, *, indexes: bool) -> None:
        """Make the log file durable; with `indexes`, also the index files.

        A recovery checks neither a sealed segment nor batches below the recovery start. So it needs their durable index
        files.
        """
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
        """Make the log file and the index files durable. Wait for the disk."""
        self.file.sync_now()
        for suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX):
            if self._disk.exists(self.path(suffix)):
                file = self._disk.open(self.path(suffix), create=False)
                file.sync_now()
                file.close()

    # ---- open -------------------------------------------------------------------------------------------------------

    def open_sealed(self, next_base_offset: int, present: Collection[str]) -> None:
        """Check the last entries of the index files of a sealed segment. `load_indexes` reads the rest when needed.

        `present` has the names of all files in the directory.

        Raises:
            CorruptIndex: An index file is missing or cannot belong to the log file, or has an entry for an offset in
                the next segment.
        """
        offsets, times = self._read_index_files(present, whole=False)
        if offsets and int.from_bytes(offsets[-4:], "big") >= self.size:
            raise CorruptIndex("the offset index points past the end of the log file")
        for index in (OffsetIndex(self.base_offset, offsets), TimeIndex(self.base_offset, times)):
            if index and index.last_offset >= next_base_offset:
                raise CorruptIndex(
                    f"index entry for offset {index.last_offset} in the next segment, {next_base_offset}"
                )

    def open_active(self, present: Collection[str], note: Callable[[BatchHeader], None]) -> int:
        """Load the indexes of the active segment, and scan from the last index entry. Return the log end offset.

        `present` has the names of all files in the directory. A log file of up to UNINDEXED_BYTES_MAX needs no index
        files (`write_last`). `note` receives the header of each batch that the scan reads.

        Raises:
            CorruptIndex: An index file is missing or cannot belong to the log file, or the scan finds a damaged batch.
        """
        self.load_indexes(*self._read_index_files(present, whole=True))
        assert self.offset_index is not None
        start = self.offset_index.last_position
        scan = Scan(self.file, start, self.size)
        end_offset = self.base_offset
        for position, header, _ in scan:
            if position == 0:
                self.first_batch_timestamp = header.max_timestamp
            if header.base_offset < end_offset:
                raise CorruptIndex(
                    f"the batch at byte {scan.position} has offset {header.base_offset}, which is below {end_offset}"
                )
            self._note_newest(header)
            end_offset = header.last_offset + 1
            note(header)
        if scan.position != self.size:
            raise CorruptIndex(f"no valid batch at byte {scan.position}: {scan.defect}")
        for index in (self.offset_index, self.time_index):
            if index and index.last_offset >= end_offset:
                raise CorruptIndex(f"index entry for offset {index.last_offset} beyond the segment end {end_offset}")
        self.bytes_since_index_entry = self.size - start
        if start > 0:
            self._read_first_timestamp()
        return end_offset

    def open_at(self, offset: int, present: Collection[str]) -> int:
        """Load the index entries below `offset`, and return the position of the first batch from there on.

        Recovery continues there, so later entries are dropped. The index files must have all entries below `offset`.
        `present` has the names of all files in the directory.

        Raises:
            CorruptIndex: An index file is missing or cannot belong to the log file, or no batch ends at `offset`.
        """
        self.load_indexes(*self._read_index_files(present, whole=True))
        assert self.offset_index is not None
        assert self.time_index is not None
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.max_timestamp, self.offset_of_max_timestamp = self.time_index.last_timestamp, self.time_index.last_offset
        position, end_offset = self.offset_index.last_position, self.base_offset
        scan = Scan(self.file, position, self.size)
        for at, header, _ in scan:
            if header.base_offset >= offset:
                break
            if header.last_offset < offset:  # otherwise its offset is damaged
                self._note_newest(header)
            position, end_offset = at + header.size, header.last_offset + 1
        if end_offset != offset:
            raise CorruptIndex(f"no batch ends at offset {offset}: the last one before it ends at {end_offset}")
        count = len(self.txn_index)
        self.txn_index.truncate_to(offset)
        if len(self.txn_index) < count:
            self.rewrite_txn_index()
        self.bytes_since_index_entry = position - self.offset_index.last_position
        self._read_first_timestamp()
        return position

    def _note_newest(self, header: BatchHeader) -> None:
        """Note the timestamp of a batch if it is the largest one so far.

        The last entry of the time index has the largest timestamp up to its offset. A larger one at a lower offset is
        damaged, and is ignored: an entry for it would be out of order.
        """
        if header.max_timestamp > self.max_timestamp and header.last_offset >= self.offset_of_max_timestamp:
            self.max_timestamp, self.offset_of_max_timestamp = header.max_timestamp, header.last_offset

    def _read_index_files(self, present: Collection[str], *, whole: bool) -> tuple[bytes, bytes]:
        """Load the transaction index and the largest timestamp.

        Return the content of the offset and the time index file; their last entries if not `whole`.
        """
        if names.offset_file(self.base_offset, names.TXN_INDEX_SUFFIX) in present:
            self.txn_index = TxnIndex(self.base_offset, self._disk.read_file(self.path(names.TXN_INDEX_SUFFIX)))
        offsets = self._read_index_file(names.OFFSET_INDEX_SUFFIX, OFFSET_ENTRY_BYTES, present, whole=whole)
        times = self._read_index_file(names.TIME_INDEX_SUFFIX, TIME_ENTRY_BYTES, present, whole=whole)
        newest = TimeIndex(self.base_offset, times[-TIME_ENTRY_BYTES:])
        self.max_timestamp, self.offset_of_max_timestamp = newest.last_timestamp, newest.last_offset
        return offsets, times

    def _read_index_file(self, suffix: str, entry_bytes: int, present: Collection[str], *, whole: bool) -> bytes:
        name = names.offset_file(self.base_offset, suffix)
        if name not in present and whole and self.size <= UNINDEXED_BYTES_MAX:
            return b""
        path = self.path(suffix)
        if name not in present:
            raise CorruptIndex(f"{path} is missing")
        return read_entries(self._disk, path, entry_bytes, whole=whole)

    def _read_first_timestamp(self) -> None:
        self.note_first_batch(self.file.read(0, HEADER_BYTES))

    def note_first_batch(self, header: Buffer) -> None:
        """Set `first_batch_timestamp` from the first bytes of the log file; None if they are not a batch header."""
        try:
            self.first_batch_timestamp = read_header(header).max_timestamp
        except Malformed:
            self.first_batch_timestamp = None

    def load_indexes(self, offset_index: Buffer, time_index: Buffer) -> None:
        """Set both indexes to the content of their files. Raise CorruptIndex if a file is not a sorted index."""
        offsets = OffsetIndex(self.base_offset, bytes(offset_index))
        self.time_index = TimeIndex(self.base_offset, bytes(time_index))
        self.offset_index = offsets

    def replace_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Set both indexes after they were rebuilt from the log file, and write their files."""
        self.offset_index, self.time_index = offset_index, time_index
        self.write_indexes()

    def unload_indexes(self) -> None:
        """Free the memory of the indexes, unless they have entries that are not in their files."""
        offsets, times = self.offset_index, self.time_index
        if offsets and times and offsets.persisted == len(offsets) and times.persisted == len(times):
            self.offset_index = self.time_index = None

    # ---- truncate, remove -------------------------------------------------------------------------------------------

    def truncate(self, position: int, offset: int) -> None:
        """Truncate the log file and the indexes to `offset`. `position` is the position of the batch that holds it."""
        assert self.offset_index is not None
        assert self.time_index is not None
        self.truncate_file(position)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        if len(self.offset_index) and self.offset_index.last_position >= position:
            raise OFFSET_INDEX_RANGE.violated(
                base_offset=self.base_offset, last_position=self.offset_index.last_position, size=position
            )
        self.drop_recent()
        if len(self.txn_index):
            self.txn_index.truncate_to(offset)
            self.rewrite_txn_index()
        self.write_indexes()
        self._derive_newest()

    def truncate_file(self, position: int) -> None:
        """Truncate the log file only. Recovery calls this after it has rebuilt the indexes up to `position`."""
        self.file.truncate(position)
        self.size = position

    def _derive_newest(self) -> None:
        """Set the largest timestamp and the index state from the last index entries and the batches after them."""
        assert self.time_index is not None
        assert self.offset_index is not None
        self.max_timestamp = self.time_index.last_timestamp
        self.offset_of_max_timestamp = self.time_index.last_offset
        start, _ = self.offset_index.position_for(self.offset_of_max_timestamp)
        for _, header, _ in Scan(self.file, start, self.size):
            self._note_newest(header)
        self.bytes_since_index_entry = self.size - self.offset_index.last_position
        self._read_first_timestamp()

    def end_offset(self) -> int:
        """Return the offset after the last batch, by a scan from the last index entry."""
        assert self.offset_index is not None
        scan = Scan(self.file, self.offset_index.last_position, self.size)
        return max((header.last_offset + 1 for _, header, _ in scan), default=self.base_offset)

    def reset_indexes(self) -> None:
        """Drop the indexes and all other state derived from the log file, before recovery rebuilds it.

        The caller calls `replace_txn_index` after recovery has read the batches.
        """
        self.offset_index = OffsetIndex(self.base_offset)
        self.time_index = TimeIndex(self.base_offset)
        self.txn_index = TxnIndex(self.base_offset)
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset
        self.first_batch_timestamp = None
        self.bytes_since_index_entry = 0
        self.drop_recent()
        self._close_txn_file()
        self._derives_txn_index = True

    def replace_indexes_of_sealed(self) -> None:
        """Make the content of `.index` and `.timeindex` that of the entries that recovery has derived (see below).

        With an empty or zeroed time index, the segment would count as old: look-ups by timestamp would skip it, and
        retention would delete it.

        Raises:
            OSError: A disk operation fails.
        """
        assert self.offset_index is not None
        assert self.time_index is not None
        self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self._replace(names.OFFSET_INDEX_SUFFIX, self.offset_index.encode(), absent=None)
        self._replace(names.TIME_INDEX_SUFFIX, self.time_index.encode(), absent=None)
        self.offset_index.persisted, self.time_index.persisted = len(self.offset_index), len(self.time_index)

    def _replace(self, suffix: str, content: bytes, *, absent: bytes | None) -> None:
        """Replace an index file in one durable step if its content differs. `absent` is the content without a file."""
        path = self.path(suffix)
        if (self._disk.read_file(path) if self._disk.exists(path) else absent) != content:
            self._disk.replace_file_now(path, content)

    def replace_txn_index(self) -> None:
        """Make the content of `.txnindex` that of the entries that recovery has derived, in one durable step.

        1. A start finds a damaged index of a segment below the recovery point, and recovers all later segments, too.
        2. The process ends during that recovery, or the power fails soon after it.
        3. The next start finds no damage, and trusts all index files below the recovery point.

        If `.txnindex` lacked an entry then, consumers with read_committed would receive records of an aborted
        transaction. If no descriptor or memory is left, the file stays, and the next entry or `seal` writes it.

        Raises:
            OSError: A disk operation fails.
        """
        self._derives_txn_index = False
        try:
            self._replace(names.TXN_INDEX_SUFFIX, self.txn_index.encode(), absent=b"")
        except ResourcesExhausted:
            self._txn_file_behind = True

    def rewrite_txn_index(self) -> None:
        """Make the content of `.txnindex` that of the entries in memory.

        Equal entries at the start of the file are not written again: a power failure must not lose the durable entries
        below a recovery start.
        """
        self._close_txn_file()
        file = self._txn_file = self._disk.open(self.path(names.TXN_INDEX_SUFFIX), create=True)
        content = self.txn_index.encode()
        kept = equal_entries(memoryview(file.read(0, file.size)), memoryview(content)) * TXN_ENTRY_BYTES
        if file.size > kept:
            file.truncate(kept)
        if content[kept:]:
            file.write(kept, content[kept:])
        self._txn_file_behind = False

    def rename_to_deleted(self) -> list[str]:
        """Rename all files to `.deleted`, and return their new paths. Open files stay readable."""
        return self.rename(names.DELETED_SUFFIX)

    def rename(self, file_suffix: str) -> list[str]:
        """Change the file suffix of all files, and return their new paths.

        The log file is first, as `sweep` requires.
        """
        old = [self.path(suffix) for suffix in names.SEGMENT_SUFFIXES]
        self._file_suffix = file_suffix
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
        """Close the files without a sync."""
        self.recent_bytes = b""
        self._close_txn_file()
        self.file.close()

    def _close_txn_file(self) -> None:
        if self._txn_file is not None:
            self._txn_file.close()
            self._txn_file = None
