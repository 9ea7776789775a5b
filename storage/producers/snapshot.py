"""Encode, decode and manage producer state snapshots: Kafka's `.snapshot` files, version 1.

A file has an int16 version, a uint32 CRC-32C of the bytes that follow it, an int32 count, and 46 bytes per producer:

- int64 producer id, int16 epoch;
- int32 last sequence, int64 last offset, int32 offset delta of the last batch, the only one that is kept;
- int64 timestamp, int32 coordinator epoch;
- int64 first offset of the open transaction, -1 if there is none.
"""

from __future__ import annotations

import struct
from bisect import insort
from typing import TYPE_CHECKING, Final

import crc32c
import structlog

from odradek.storage.files import names
from odradek.storage.producers.entry import CachedBatch, ProducerEntry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.protocol.schema import Buffer
    from odradek.storage.disk.port import Disk

_logger = structlog.get_logger(__name__)

VERSION = 1
ACTIVE_SEGMENT_SNAPSHOTS_MAX: Final = 3
"""Maximum snapshots that a log keeps above the base offset of its active segment.

They are those of the last flushes and of the last stop or recovery.
"""
_VERSION_AND_CRC = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(ValueError):
    """The file has a wrong version, length or checksum. An older snapshot can replace it."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the content of a snapshot file."""
    packed = [
        _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if entry.transaction_first_offset is None else entry.transaction_first_offset,
        )
        for entry in entries
    ]
    body = b"".join([_COUNT.pack(len(packed)), *packed])
    return _VERSION_AND_CRC.pack(VERSION, crc32c.crc32c(body)) + body


def decode_snapshot(data: Buffer) -> list[ProducerEntry]:
    """Return the entries of a snapshot file in their order. Raise CorruptSnapshot if it is damaged."""
    start = _VERSION_AND_CRC.size + _COUNT.size
    if len(data) < start:
        raise CorruptSnapshot(f"the snapshot has {len(data)} bytes, fewer than its header of {start}")
    version, checksum = _VERSION_AND_CRC.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"the snapshot has version {version}, but only {VERSION} is supported")
    if crc32c.crc32c(memoryview(data)[_VERSION_AND_CRC.size :]) != checksum:
        raise CorruptSnapshot("the checksum of the snapshot does not match")
    (count,) = _COUNT.unpack_from(data, _VERSION_AND_CRC.size)
    if count < 0 or len(data) != start + count * _ENTRY.size:
        raise CorruptSnapshot(f"the snapshot has {len(data)} bytes, which do not match its {count} entries")
    return [_entry(*_ENTRY.unpack_from(data, start + n * _ENTRY.size)) for n in range(count)]


def _entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> ProducerEntry:
    batches = [CachedBatch(last_sequence, last_offset, offset_delta, timestamp)] if last_offset >= 0 else []
    opened = transaction_first_offset if transaction_first_offset >= 0 else None
    return ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, opened, batches)


class SnapshotFiles:
    """The `.snapshot` files of a log. A file holds the state before the offset in its name."""

    def __init__(self, disk: Disk, directory: str, present: Iterable[str]) -> None:
        """`present` has the names of all files in the directory."""
        self._disk = disk
        self._directory = directory
        parsed = [names.parse_offset_file(name) for name in present if name.endswith(names.SNAPSHOT_SUFFIX)]
        self.offsets = sorted(entry[0] for entry in parsed if entry is not None and entry[1] == names.SNAPSHOT_SUFFIX)
        self._unsynced: list[int] = []
        self._distrusted: list[int] = []
        """Offsets of files that may have wrong content (`distrust_above`, `distrust`)."""

    def path(self, offset: int) -> str:
        """Return the path of the snapshot at `offset`."""
        return f"{self._directory}/{names.offset_file(offset, names.SNAPSHOT_SUFFIX)}"

    def take(self, entries: Iterable[ProducerEntry], offset: int) -> None:
        """Write the snapshot at `offset` unless it exists. `sync` or `sync_now` makes it durable."""
        if offset not in self.offsets:
            self.write(encode_snapshot(entries), offset)

    def write(self, content: bytes, offset: int) -> None:
        """Write the encoded snapshot at `offset`. `sync` or `sync_now` makes it durable."""
        if offset not in self._distrusted or self._disk.read_file(self.path(offset)) != content:
            file = self._disk.open(self.path(offset), create=True)
            try:
                file.truncate(0)
                file.write(0, content)
            finally:
                file.close()
        if offset in self._distrusted:
            self._distrusted.remove(offset)
        if offset not in self.offsets:
            insort(self.offsets, offset)
        if offset not in self._unsynced:
            self._unsynced.append(offset)

    def load_newest(self, through: int) -> tuple[int, list[ProducerEntry]] | None:
        """Return (offset, entries) of the newest undamaged snapshot at or below `through`; None if there is none.

        Newer damaged snapshots are removed.
        """
        while usable := [offset for offset in self.offsets if offset <= through]:
            offset = usable[-1]
            try:
                return offset, decode_snapshot(self._disk.read_file(self.path(offset)))
            except CorruptSnapshot as error:
                _logger.warning("damaged producer snapshot removed", path=self.path(offset), reason=str(error))
                self.remove(offset)
        return None

    def remove(self, offset: int) -> None:
        """Remove the snapshot at `offset`, which must exist."""
        self._disk.remove(self.path(offset))
        self.offsets.remove(offset)
        if offset in self._unsynced:
            self._unsynced.remove(offset)

    def rename_to_deleted(self, offset: int) -> list[str]:
        """Rename the snapshot at `offset` to `.deleted`. Return a list with its new path; empty if there is none."""
        if offset not in self.offsets:
            return []
        path = self.path(offset)
        self._disk.rename(path, path + names.DELETED_SUFFIX)
        self.offsets.remove(offset)
        if offset in self._unsynced:
            self._unsynced.remove(offset)
        return [path + names.DELETED_SUFFIX]

    def distrust_above(self, offset: int) -> None:
        """Use no snapshot above `offset` before recovery has derived its content.

        Recovery mostly derives the same content. `take` then keeps the file, because to remove and to create a file is
        expensive. `remove_distrusted` removes the other files.
        """
        self._distrusted = [each for each in self.offsets if each > offset]
        self.offsets = [each for each in self.offsets if each <= offset]

    def distrust(self, offset: int) -> None:
        """Use no snapshot at `offset` before `take` has compared its content. Without one there, do nothing."""
        if offset in self.offsets:
            self.offsets.remove(offset)
            self._distrusted.append(offset)

    def remove_distrusted(self) -> None:
        """Remove the snapshots that recovery did not derive. Raise OSError if a disk operation fails."""
        while self._distrusted:
            self._disk.remove(self.path(self._distrusted.pop()))

    def remove_outside(self, above: int, through: int) -> None:
        """Remove all snapshots except those with above < offset <= through."""
        for offset in [offset for offset in self.offsets if not above < offset <= through]:
            self.remove(offset)

    def remove_strays(self, segment_bases: list[int], *, high_watermark: int, recovery_start: int | None) -> None:
        """Remove all snapshots except those at the base offset of a segment, and the newest ones above all of these.

        The newest one at or below the high watermark and that at `recovery_start` stay, too: a recovery loads them.

        At most ACTIVE_SEGMENT_SNAPSHOTS_MAX stay above all base offsets: those of the last flushes of the active
        segment, and that of a clean shutdown at the log end.
        """
        if not self.offsets:
            return
        newest = [offset for offset in self.offsets if offset > segment_bases[-1]][-ACTIVE_SEGMENT_SNAPSHOTS_MAX:]
        usable = [offset for offset in self.offsets if offset <= high_watermark][-1:]
        kept = dict.fromkeys([*segment_bases, *newest, *usable, recovery_start])
        for offset in [offset for offset in self.offsets if offset not in kept]:
            self.remove(offset)

    @property
    def unsynced(self) -> bool:
        """True if a snapshot is not durable."""
        return bool(self._unsynced)

    async def sync(self) -> None:
        """Make all snapshots durable. Raise OSError if a disk operation fails."""
        while self._unsynced:
            offset = self._unsynced[-1]
            file = self._disk.open(self.path(offset), create=False)
            self._unsynced.remove(offset)
            try:
                await file.sync()
            finally:
                file.close()

    def sync_now(self) -> None:
        """Make all snapshots durable. Wait for the disk. Raise OSError if a disk operation fails."""
        while self._unsynced:
            file = self._disk.open(self.path(self._unsynced.pop()), create=False)
            file.sync_now()
            file.close()
