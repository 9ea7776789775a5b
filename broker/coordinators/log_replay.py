"""Read a range of offsets of a partition's log, record by record, in slices between which other tasks run."""

from asyncio import Future, get_running_loop, sleep
from heapq import heappop, heappush
from typing import Final

from odradek.broker.partition.partition import Partition
from odradek.protocol.batch import (
    HEADER_BYTES,
    BatchHeader,
    ControlType,
    Record,
    control_type,
    iter_batches,
    parse_end_txn_marker,
    records_of,
    verify_crc,
)
from odradek.protocol.errors import Malformed
from odradek.protocol.record import plain_record
from odradek.runtime.log_port import ReplayVisitor
from odradek.runtime.shard import Marker, ShardRecord
from odradek.storage.log.reads import ColdRead

RECORDS_PER_SLICE: Final = 200
"""Records that are visited before the event loop runs other tasks (about 2 ms)."""
BATCH_BYTES_MAX: Final = 128 * 1024 * 1024
"""Maximum decompressed size of one batch, in bytes. This broker's coordinators write no compressed batches; Kafka's
may."""


async def replay(partition: Partition, start: int, end: int, visit: ReplayVisitor, *, read_bytes: int) -> None:
    """Visit all data records and markers from `start` to below `end`, in order, with reads of `read_bytes`.

    An exception of `visit` ends the replay. Raise Malformed if a batch is damaged, Refusal(OFFSET_OUT_OF_RANGE) or
    Refusal(OFFSET_NOT_AVAILABLE) if the log was truncated during the read, and Refusal(KAFKA_STORAGE_ERROR) if the disk
    fails.
    """
    offset = start
    visited = 0
    while offset < end:
        read = partition.read(offset, max_bytes=read_bytes, limit=end, min_one_batch=True)
        if isinstance(read, ColdRead):
            read = await partition.complete_read(read.resolve())
        before = offset
        for header, batch in iter_batches(read.records):
            if not verify_crc(batch, 0, header):
                directory = partition.log.directory
                raise Malformed(f"{directory}: the batch at offset {header.base_offset} has a wrong checksum")
            _visit_batch(header, batch, visit, offset)
            offset = header.last_offset + 1
            visited += header.record_count
            if visited >= RECORDS_PER_SLICE:
                visited = 0
                await sleep(0)
        if offset == before:
            return  # Compaction or a crash left no record between here and `end` (KAFKA-9065).


def _visit_batch(header: BatchHeader, batch: memoryview, visit: ReplayVisitor, start: int) -> None:
    """Visit the records of `batch` at or above `start`. The first batch of a read may start below it."""
    if header.record_count == 1 and not header.attributes and start <= header.base_offset:
        plain = plain_record(batch[HEADER_BYTES:])
        if plain is not None:
            visit(header.base_offset, ShardRecord(*plain), header.leader_epoch)
            return
    for record in records_of(batch, header, max_decompressed_bytes=BATCH_BYTES_MAX):
        if record.offset < start:
            continue
        if header.is_control:
            marker = _marker(header, record)
            if marker is not None:
                visit(record.offset, marker, header.leader_epoch)
            continue
        producer_id, epoch = (header.producer_id, header.producer_epoch) if header.is_transactional else (-1, -1)
        visit(record.offset, ShardRecord(record.key, record.value, producer_id, epoch), header.leader_epoch)


def _marker(header: BatchHeader, record: Record) -> Marker | None:
    kind = control_type(record.key or b"")
    if kind not in {ControlType.COMMIT, ControlType.ABORT}:
        return None
    coordinator_epoch = parse_end_txn_marker(record.value or b"")
    return Marker(header.producer_id, header.producer_epoch, coordinator_epoch, kind is ControlType.COMMIT)


class LoadQueue:
    """Limit of concurrent replays.

    The shortest replay runs first, so that one long log does not delay all short ones.
    """

    def __init__(self, concurrent_max: int) -> None:
        self._free = concurrent_max
        self._waiting: list[tuple[int, int, Future[None]]] = []
        self._number = 0

    async def acquire(self, records: int) -> None:
        """Wait until a log of `records` records may be replayed. The caller calls `release` after the replay."""
        if self._free:
            self._free -= 1
            return
        self._number += 1
        permit: Future[None] = get_running_loop().create_future()
        heappush(self._waiting, (records, self._number, permit))
        try:
            await permit
        except BaseException:
            if permit.done() and not permit.cancelled():
                self.release()  # The task was cancelled after it obtained the permission.
            raise

    def release(self) -> None:
        """End a replay that `acquire` permitted, and start the shortest waiting one."""
        while self._waiting:
            _, _, permit = heappop(self._waiting)
            if not permit.done():
                permit.set_result(None)
                return
        self._free += 1
