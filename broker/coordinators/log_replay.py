"""Read a range of offsets of a partition's log, record by record, in slices between which other tasks run."""

from asyncio import sleep
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from odradek.broker.partition.partition import Partition
from odradek.protocol.batch import (
    HEADER_BYTES,
    BatchHeader,
    Compression,
    ControlType,
    Record,
    control_type,
    iter_batches,
    parse_end_txn_marker,
    verify_crc,
)
from odradek.protocol.compression import ExpansionExceeded, decompress
from odradek.protocol.errors import Malformed
from odradek.protocol.record import plain_record, read_records
from odradek.protocol.schema import Buffer
from odradek.runtime.log_port import ReplayVisitor
from odradek.runtime.shard import Marker, ShardRecord
from odradek.storage.batches.record_checks import INLINE_BYTES_MAX, INLINE_EXPANDED_BYTES_MAX
from odradek.storage.files.names import LOG_SUFFIX
from odradek.storage.log.reads import ColdRead

RECORDS_PER_SLICE: Final = 200
"""Records that are visited before the event loop runs other tasks (about 2 ms)."""
BATCH_BYTES_MAX: Final = 128 * 1024 * 1024
"""Maximum decompressed size of one batch, in bytes. This broker's coordinators write no compressed batches; Kafka's
may."""


async def replay(partition: Partition, start: int, end: int, visit: ReplayVisitor, *, read_bytes: int) -> None:
    """Visit all data records and markers from `start` to below `end`, in order, with reads of `read_bytes`.

    An exception of `visit` ends the replay.

    Raises:
        Malformed: A batch is damaged, or `visit` has raised it. The message has the file and the offset.
        Refusal: OFFSET_OUT_OF_RANGE or OFFSET_NOT_AVAILABLE if the log was truncated during the read,
            KAFKA_STORAGE_ERROR if the disk fails.
    """
    offset = start
    visited = 0
    while offset < end:
        read = partition.read(offset, max_bytes=read_bytes, limit=end, min_one_batch=True)
        if isinstance(read, ColdRead):
            read = await partition.complete_read(read.resolve())
        before = offset
        try:
            for header, batch in iter_batches(read.records):
                if not verify_crc(batch, 0, header):
                    raise Malformed("the checksum does not match")
                if header.record_count == 1 and not header.attributes and offset <= header.base_offset:
                    plain = plain_record(batch[HEADER_BYTES:])
                    if plain is not None:
                        visit(header.base_offset, ShardRecord(*plain), header.leader_epoch)
                        visited = await _pause_if_due(visited + 1)
                        offset = header.last_offset + 1
                        continue
                for record in await _records(partition, header, batch):
                    if record.offset >= offset:  # the first batch of a read may start below it
                        _visit_record(header, record, visit)
                    visited = await _pause_if_due(visited + 1)
                offset = header.last_offset + 1
        except Malformed as error:
            path = partition.log.directory if read.segment is None else read.segment.path(LOG_SUFFIX)
            raise Malformed(f"{path}: batch at or after offset {offset}: {error}") from error
        if offset == before:
            return  # Compaction or a crash left no record between here and `end` (KAFKA-9065).


async def _pause_if_due(visited: int) -> int:
    """Let other tasks run if `visited` records make a slice. Return the records since the last pause."""
    if visited < RECORDS_PER_SLICE:
        return visited
    await sleep(0)
    return 0


async def _records(partition: Partition, header: BatchHeader, batch: memoryview) -> Iterator[Record]:
    return read_records(
        await _body(partition, header, batch),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.timestamp_type else None,
        headers_max=0,  # coordinators write none, and their number has no limit
    )


async def _body(partition: Partition, header: BatchHeader, batch: memoryview) -> Buffer:
    """Return the decompressed records of a batch. Decompress a large batch in a thread.

    A client whose client id is that of the admin client can produce to internal topics, as in Kafka. So such a batch
    can expand up to BATCH_BYTES_MAX.
    """
    packed, codec = batch[HEADER_BYTES : header.size], header.compression
    if codec is Compression.NONE:
        return packed
    if len(packed) <= INLINE_BYTES_MAX:
        with suppress(ExpansionExceeded):
            return decompress(codec, packed, max_bytes=INLINE_EXPANDED_BYTES_MAX)
    return await partition.log.disk.in_thread(partial(decompress, codec, packed, max_bytes=BATCH_BYTES_MAX))


def _visit_record(header: BatchHeader, record: Record, visit: ReplayVisitor) -> None:
    if header.is_control:
        marker = _marker(header, record)
        if marker is not None:
            visit(record.offset, marker, header.leader_epoch)
        return
    producer_id, epoch = (header.producer_id, header.producer_epoch) if header.is_transactional else (-1, -1)
    visit(record.offset, ShardRecord(record.key, record.value, producer_id, epoch), header.leader_epoch)


def _marker(header: BatchHeader, record: Record) -> Marker | None:
    kind = control_type(record.key or b"")
    if kind not in {ControlType.COMMIT, ControlType.ABORT}:
        return None
    coordinator_epoch = parse_end_txn_marker(record.value or b"")
    return Marker(header.producer_id, header.producer_epoch, coordinator_epoch, kind is ControlType.COMMIT)
