"""Reading a hosted partition's log from one offset to another, record by record, beside everything else the loop does."""

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

RECORDS_AT_A_TIME: Final = 200
"""Records between two looks at the rest of the loop: some 2 ms."""
BATCH_BYTES_MAX: Final = 128 * 1024 * 1024
"""What one batch of a coordinator's own log may decompress to; it writes none compressed itself."""


async def replay(partition: Partition, start: int, end: int, visit: ReplayVisitor, *, read_bytes: int) -> None:
    """Visit every data record and marker from `start` to below `end`, in order; `read_bytes` are read at a time.

    What `visit` raises ends it. Raises Malformed for bytes that are not what was written, and Refusal: OFFSET_OUT_OF_RANGE or
    OFFSET_NOT_AVAILABLE when the log was cut meanwhile, KAFKA_STORAGE_ERROR when the disk refuses.
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
                raise Malformed(f"{directory}: the checksum of the batch at offset {header.base_offset} is wrong")
            _visit_batch(header, batch, visit, offset)
            offset = header.last_offset + 1
            visited += header.record_count
            if visited >= RECORDS_AT_A_TIME:
                visited = 0
                await sleep(0)
        if offset == before:
            return  # a gap up to the end, left by the cleaner or by a crash (KAFKA-9065)


def _visit_batch(header: BatchHeader, batch: memoryview, visit: ReplayVisitor, start: int) -> None:
    """Visit what `batch` holds from offset `start` on; the first batch of a read may begin below it."""
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


class Turns:
    """Who may replay: a few at a time, the shortest first, so that one long log holds up nobody else's."""

    def __init__(self, at_a_time: int) -> None:
        self._free = at_a_time
        self._waiting: list[tuple[int, int, Future[None]]] = []
        self._number = 0

    async def take(self, records: int) -> None:
        """Returns when `records` may be replayed; `give` has to follow."""
        if self._free:
            self._free -= 1
            return
        self._number += 1
        turn: Future[None] = get_running_loop().create_future()
        heappush(self._waiting, (records, self._number, turn))
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.give()  # it was given and can not be used
            raise

    def give(self) -> None:
        """The replay has ended, one way or another."""
        while self._waiting:
            _, _, turn = heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
