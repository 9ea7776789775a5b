"""The checkers' own reader of Kafka's bytes. It shares no code with the broker: a misreading would have to be made twice."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import crc32c

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
CRC_START: Final = 21
TRANSACTIONAL, CONTROL, DELETE_HORIZON, CODEC_MASK = 0x10, 0x20, 0x40, 0x07
ABORT, COMMIT = 0, 1

Buffer = bytes | bytearray | memoryview
Identity = tuple[int, int, int]
"""Offset, leader epoch and checksum: two batches that agree in them are one."""


class Unreadable(ValueError):
    """Bytes that are no record batch."""


@dataclass(slots=True)
class Batch:
    """One record batch; `values` holds (key, value) of each record (uncompressed batches only)."""

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
    """Of each record, how far its offset lies behind the first: where compaction has been, some are missing."""
    records: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    marks: dict[int, bytes] = field(default_factory=dict)
    """By delta of a record without a value, what stands in its header."""

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
        """Of its records."""
        return [self.base_offset + delta for delta in self.deltas]

    @property
    def values(self) -> list[bytes]:
        """What each record is known by: its value, or the mark of a tombstone."""
        rows = zip(self.deltas, self.records, strict=True)
        return [self.marks.get(delta, b"") if value is None else value for delta, (_, value) in rows]

    @property
    def delete_horizon(self) -> int | None:
        """From when on (ms of wall-clock time) tombstones in it, or its marker, may go."""
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
    """Batches from the start of `data`; a partial one at the end is left out. One that is `known` is not read again (its position is that of
    its first sight).

    Raises:
        Unreadable: a batch that contradicts itself, or (with `check_crc`) whose checksum is wrong.
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
        name = (fields[0], fields[2], fields[4])
        if known is not None and name in known:
            yield known[name]
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
        if not batch.attributes & CODEC_MASK:
            _read_records(batch, bytes(body[HEADER_BYTES:]), fields[12])
        yield batch
        position += size


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
