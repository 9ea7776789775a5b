"""Reader of record batches.

It shares no code with the broker, so an error of the broker's reader is not repeated here.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import cramjam
import crc32c

from tests.sim.workloads.codecs import decompress

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
CRC_START: Final = 21
TRANSACTIONAL, CONTROL, DELETE_HORIZON, CODEC_MASK = 0x10, 0x20, 0x40, 0x07
ABORT, COMMIT = 0, 1

Buffer = bytes | bytearray | memoryview
Identity = tuple[int, int, int]
"""Offset, leader epoch and checksum. Two batches with the same identity are equal."""


class Unreadable(ValueError):
    """Raised for bytes that are not a record batch."""


@dataclass(slots=True)
class Batch:
    """One record batch; `records` holds (key, value) of each record."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    max_timestamp: int
    size: int
    position: int
    crc: int = 0
    base_timestamp: int = -1
    deltas: list[int] = field(default_factory=list)
    """Offset of each record relative to the base offset. Compaction leaves gaps."""
    records: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    marks: dict[int, bytes] = field(default_factory=dict)
    """By offset delta of a record without a value: the value of its header."""

    @property
    def identity(self) -> Identity:
        return self.base_offset, self.leader_epoch, self.crc

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def offsets(self) -> list[int]:
        """Offsets of the records."""
        return [self.base_offset + delta for delta in self.deltas]

    @property
    def values(self) -> list[bytes]:
        """Unique value of each record: its value, or the header value of a tombstone."""
        rows = zip(self.deltas, self.records, strict=True)
        return [self.marks.get(delta, b"") if value is None else value for delta, (_, value) in rows]

    @property
    def delete_horizon(self) -> int | None:
        """Wall-clock time (ms) from which compaction may remove the tombstones or the marker of the batch, or None."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) & 0x7FFFFFFF

    @property
    def control_type(self) -> int:
        key = self.records[0][0]
        assert self.is_control
        assert key is not None
        return int(struct.unpack(">h", key[2:4])[0])

    @property
    def coordinator_epoch(self) -> int:
        value = self.records[0][1]
        assert value is not None
        return int(struct.unpack(">i", value[2:6])[0])


def read_batches(
    data: Buffer, *, check_crc: bool = False, known: dict[Identity, Batch] | None = None
) -> Iterator[Batch]:
    """Yield batches from the start of `data`; omit a partial one at the end. A batch in `known` is not parsed again and
    keeps its first position.

    Raises:
    Unreadable: the fields of a batch contradict each other, or (with `check_crc`) its checksum is wrong.
    """
    view = memoryview(data)
    position = 0
    while len(view) - position >= HEADER_BYTES:
        fields = HEADER.unpack_from(view, position)
        size = fields[1] + 12
        if size < HEADER_BYTES or fields[3] != 2:
            raise Unreadable(f"batch at {position}: length {fields[1]}, magic {fields[3]}")
        if position + size > len(view):
            return
        body = view[position : position + size]
        if check_crc and crc32c.crc32c(bytes(body[CRC_START:])) != fields[4]:
            raise Unreadable(f"batch at {position}, offset {fields[0]}: wrong checksum")
        identity = (fields[0], fields[2], fields[4])
        if known is not None and identity in known:
            yield known[identity]
            position += size
            continue
        batch = Batch(
            base_offset=fields[0],
            last_offset=fields[0] + fields[6],
            leader_epoch=fields[2],
            attributes=fields[5],
            producer_id=fields[9],
            producer_epoch=fields[10],
            base_sequence=fields[11],
            max_timestamp=fields[8],
            size=size,
            position=position,
            crc=fields[4],
            base_timestamp=fields[7],
        )
        _read_records(batch, _uncompressed(batch, bytes(body[HEADER_BYTES:])), fields[12])
        yield batch
        position += size


def _uncompressed(batch: Batch, data: bytes) -> bytes:
    codec = batch.attributes & CODEC_MASK
    try:
        return decompress(codec, data) if codec else data
    except (ValueError, OSError, EOFError, cramjam.DecompressionError) as error:
        raise Unreadable(f"batch at {batch.position}, offset {batch.base_offset}: {error}") from error


def _varint(data: bytes, position: int) -> tuple[int, int]:
    shift = result = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7


def _read_records(batch: Batch, data: bytes, count: int) -> None:
    position = 0
    for _ in range(count):
        length, position = _varint(data, position)
        end = position + length
        position += 1
        _, position = _varint(data, position)
        delta, position = _varint(data, position)
        key, position = _bytes(data, position)
        value, position = _bytes(data, position)
        if value is None:
            count, position = _varint(data, position)
            if count:
                _, position = _bytes(data, position)
                batch.marks[delta] = _bytes(data, position)[0] or b""
        batch.deltas.append(delta)
        batch.records.append((key, value))
        position = end


def _bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _varint(data, position)
    if size < 0:
        return None, position
    return data[position : position + size], position + size
