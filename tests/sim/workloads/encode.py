"""Encoder of record batches for simulated clients.

It shares no code with the broker, so errors of the broker's encoder cannot cancel out.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

import crc32c

from tests.sim.workloads.codecs import compress

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
MARK: Final = b"mark"
"""Name of the record header that identifies a tombstone."""


def _varint(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _record(index: int, key: bytes | None, value: bytes | None, mark: bytes | None) -> bytes:
    body = b"\0\0" + _varint(index)
    for part in (key, value):
        body += _varint(-1) if part is None else _varint(len(part)) + part
    if mark is None:
        body += b"\0"
    else:
        body += _varint(1) + _varint(len(MARK)) + MARK + _varint(len(mark)) + mark
    return _varint(len(body)) + body


def encode_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    *,
    timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    marks: Mapping[int, bytes] | None = None,
    codec: int = 0,
) -> bytes:
    """Encode a batch whose records share one timestamp. `marks`: header value by index of the record."""
    body = b"".join(_record(index, key, value, (marks or {}).get(index)) for index, (key, value) in enumerate(records))
    if codec:
        body = compress(codec, body)
    batch = bytearray(
        HEADER.pack(
            base_offset,
            HEADER.size - 12 + len(body),
            leader_epoch,
            2,
            0,
            attributes | codec,
            len(records) - 1,
            timestamp,
            timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    )
    batch += body
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


def encode_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    commit: bool,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Encode an end-of-transaction marker as in a log, for hand-written histories."""
    key = struct.pack(">hh", 0, 1 if commit else 0)
    return encode_batch(
        [(key, struct.pack(">hi", 0, coordinator_epoch))],
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
