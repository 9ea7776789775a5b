"""`runtime.log_port.ShardLog` over a partition: how a coordinator's engine reaches its log."""

from collections.abc import Sequence
from typing import Final

from broker.partition import Partition
from protocol.batch import (
    BatchHeader,
    ControlType,
    Record,
    build_batch,
    control_type,
    iter_batches,
    iter_records,
    parse_end_txn_marker,
    verify_crc,
)
from protocol.errors import ErrorCode, Malformed, Refusal
from runtime.log_port import ReplayVisitor, WatermarkCallback
from runtime.shard import Marker, ShardRecord
from storage.producer_entry import Origin
from storage.reads import ColdRead

BATCH_BYTES_MAX: Final = 128 * 1024 * 1024
"""What one batch of a coordinator's own log may decompress to; it writes none compressed itself."""


class PartitionLogPort:
    """One leadership of one partition, as a shard's log."""

    def __init__(self, partition: Partition, *, read_bytes: int) -> None:
        """`read_bytes`: what is read at a time at a replay (`transaction.state.log.load.buffer.size`)."""
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._read_bytes = read_bytes

    @property
    def log_end_offset(self) -> int:
        return self._partition.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._partition.log.high_watermark

    def append(self, records: Sequence[ShardRecord], now_ms: int) -> int:
        """One atomic batch; returns the log end offset behind it.

        Raises:
            Refusal: nothing was written.
            OSError: it is not known what was written; the partition is offline.
        """
        partition = self._partition
        if partition.leader_epoch != self._leader_epoch:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        first = records[0]
        batch = build_batch(
            [(record.key, record.value, now_ms, ()) for record in records],
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            transactional=first.producer_id >= 0,
        )
        try:
            partition.append(batch, origin=Origin.COORDINATOR, now_ms=now_ms)
        except Refusal as refusal:
            # A client is told KAFKA_STORAGE_ERROR. A shard has to know that log and memory are apart now.
            if isinstance(refusal.__cause__, OSError):
                raise refusal.__cause__ from None
            raise
        return partition.log.log_end_offset

    async def replay(self, visit: ReplayVisitor) -> None:
        """Every data record and marker from log start to log end, in order."""
        partition = self._partition
        log = partition.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            read = partition.read(offset, max_bytes=self._read_bytes, limit=log.log_end_offset, min_one_batch=True)
            if isinstance(read, ColdRead):
                read = await partition.on_disk(read.resolve())
            before = offset
            for header, batch in iter_batches(read.records):
                if not verify_crc(batch, 0, header):
                    raise Malformed(
                        f"{log.directory}: the checksum of the batch at offset {header.base_offset} is wrong"
                    )
                _visit_batch(header, batch, visit, offset)
                offset = header.last_offset + 1
            if offset == before:
                return  # a gap up to the end, left by the cleaner or by a crash (KAFKA-9065)

    def subscribe(self, callback: WatermarkCallback) -> None:
        self._partition.subscribe(callback)

    def unsubscribe(self, callback: WatermarkCallback) -> None:
        self._partition.unsubscribe(callback)


def _visit_batch(header: BatchHeader, batch: memoryview, visit: ReplayVisitor, start: int) -> None:
    """Visit what `batch` holds from offset `start` on; the first batch of a read may begin below it."""
    for record in iter_records(batch, max_decompressed_bytes=BATCH_BYTES_MAX):
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
