"""Read a snapshot and verify that it is complete (KIP-630)."""

from __future__ import annotations

from asyncio import sleep
from typing import TYPE_CHECKING, Final

from odradek.cluster.raft.batches import BATCH_BYTES_MAX, LogBatch
from odradek.protocol import batch
from odradek.protocol.batch import ControlType
from odradek.protocol.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from odradek.cluster.raft.messages import EpochEnd
    from odradek.cluster.raft.ports import RaftStorage

SNAPSHOT_READ_BYTES_MAX: Final = 16 * 1024
"""Maximum bytes of one read, whose batches are decoded and replayed in one turn of the event loop: about 200 records,
which take 4 ms."""


async def read_snapshot(storage: RaftStorage, snapshot: EpochEnd) -> AsyncIterator[list[LogBatch]]:
    """Return its data batches, a few at a time, with their offsets within the snapshot.

    Raise Malformed if it is corrupt or has no header or footer. Raise OSError if it cannot be read.
    """
    position = 0
    size = 1  # the first read returns the real size
    rest = b""
    begun = False
    ended = False
    while position < size:
        if position:
            await sleep(0)
        piece = await storage.read_snapshot(snapshot, position, SNAPSHOT_READ_BYTES_MAX)
        if piece is None or not piece.data:
            raise Malformed(f"snapshot {snapshot.end_offset}-{snapshot.epoch} ends at byte {position}")
        size = piece.size
        position += len(piece.data)
        data = rest + piece.data
        found: list[LogBatch] = []
        used = 0
        for header, view in _batches(data):
            used += len(view)
            kind = _control(header, view) if header.is_control else None
            if ended or begun is (kind is ControlType.SNAPSHOT_HEADER):
                raise Malformed("a snapshot begins with its header, and nothing follows its footer")
            begun = True
            ended = kind is ControlType.SNAPSHOT_FOOTER
            if kind is None:
                decoded = batch.iter_records(view, max_decompressed_bytes=BATCH_BYTES_MAX)
                records = tuple((record.key, record.value) for record in decoded)
                found.append(LogBatch(header.base_offset, header.last_offset, snapshot.epoch, records, len(view)))
        rest = data[used:]
        if len(rest) > BATCH_BYTES_MAX:
            raise Malformed(f"a batch of a snapshot has more than {BATCH_BYTES_MAX} bytes")
        yield found
    if rest or not ended:
        raise Malformed("a snapshot has no footer")


def _batches(data: bytes) -> Iterator[tuple[batch.BatchHeader, memoryview]]:
    for header, view in batch.iter_batches(data):
        if not batch.verify_crc(view, 0, header):
            raise Malformed(f"the checksum of the batch at {header.base_offset} of a snapshot does not match")
        yield header, view


def _control(header: batch.BatchHeader, view: memoryview) -> ControlType:
    for record in batch.iter_records(view, max_decompressed_bytes=BATCH_BYTES_MAX):
        return batch.control_type(record.key)
    raise Malformed(f"an empty control batch at {header.base_offset}")
