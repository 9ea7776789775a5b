"""Fuzz targets of record batches. An input is a byte of settings, and the batches.

The harness corrects the checksum of the first batch, unless a setting forbids it: damage behind a wrong checksum is not
examined.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from crc32c import crc32c

from odradek.broker.coordinators.internal_appends import check_client_append
from odradek.protocol.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_AT,
    Compression,
    iter_batches,
    read_header,
    records_of,
    seal_batch,
)
from odradek.protocol.compression import ExpansionExceeded, decompress
from odradek.protocol.errors import Malformed, Refusal
from odradek.protocol.internal_topics import CONSUMER_OFFSETS
from odradek.storage.batches.limits import decompressed_bytes_max
from odradek.storage.batches.record_checks import SLICE_UNITS, RecordCheckPending, body_at_once
from odradek.storage.batches.validation import check_leader_append, read_marker
from odradek.storage.batches.work import WorkSlice, run_unsliced
from odradek.storage.config import COMPRESSION_AS_PRODUCED, LOG_APPEND_TIME, UNCOMPRESSED, LogConfig
from odradek.storage.log.timestamp_tables import make_table
from odradek.storage.producers.entry import Origin
from tests.fuzz.mutations import damaged
from tests.fuzz.target import KIB, Bound, Target
from tests.support.crafted import KEYLESS, crafted, tiny_record
from tests.support.logs import NOW_MS, batch, marker, produced

if TYPE_CHECKING:
    from random import Random

MESSAGE_BYTES_MAX = 64 * KIB
CODECS = (COMPRESSION_AS_PRODUCED, UNCOMPRESSED, "gzip", "snappy", "lz4", "zstd")
WRONG_CHECKSUM, COMPACTED, ALL_RECORDS, APPEND_TIME, CODEC_SHIFT = 1, 2, 4, 8, 4
EXPANSION = Bound(6 * 1024 * KIB, 64)
"""Decompressed records have at most 2 MiB here (`decompressed_bytes_max`), and their check needs a copy."""
WORK = Bound(1_200_000, 200)
"""MESSAGE_BYTES_MAX bytes have at most 9,362 records, whose check takes about 30 lines per record."""


def config_of(settings: int) -> LogConfig:
    return LogConfig(
        max_message_bytes=MESSAGE_BYTES_MAX,
        cleanup_policy=("compact",) if settings & COMPACTED else ("delete",),
        validate_records_all=bool(settings & ALL_RECORDS),
        message_timestamp_type=LOG_APPEND_TIME if settings & APPEND_TIME else "CreateTime",
        message_timestamp_before_max_ms=1_000_000,
        compression_type=CODECS[(settings >> CODEC_SHIFT) % len(CODECS)],
    )


def sealed(data: bytes) -> bytes:
    """Return the batches with the checksum of the first one corrected."""
    if len(data) < HEADER_BYTES:
        return data
    size = int.from_bytes(data[LENGTH_AT : LENGTH_AT + 4], "big") + 12
    if not HEADER_BYTES <= size <= len(data):
        return data
    return data[:CRC_AT] + crc32c(data[ATTRIBUTES_AT:size]).to_bytes(4, "big") + data[ATTRIBUTES_AT:]


def run_produced(data: bytes) -> int:
    """Check and convert a produced batch as a leader does."""
    if not data:
        return 0
    batches = data[1:] if data[0] & WRONG_CHECKSUM else sealed(data[1:])
    config = config_of(data[0])
    try:
        check_leader_append(batches, Origin.CLIENT, config, now_ms=NOW_MS, work=WorkSlice(SLICE_UNITS))
    except RecordCheckPending as pending:
        finish(pending)
    return 0


def finish(pending: RecordCheckPending) -> None:
    """Run a check that continues after its first slice, with its functions in this thread."""
    request = pending.first
    with suppress(StopIteration):
        while True:
            try:
                result = None if request is None else request()
            except Malformed as error:
                request = pending.work.throw(error)
            else:
                request = pending.work.send(result)


def run_stored(data: bytes) -> int:
    """Decode batches as readers of a log do: records, markers, look-up by timestamp, checks of internal topics."""
    if not data:
        return 0
    batches = data[1:] if data[0] & WRONG_CHECKSUM else sealed(data[1:])
    for header, view in iter_batches(batches):
        try:
            body = body_at_once(view, header, MESSAGE_BYTES_MAX)
        except ExpansionExceeded:
            continue
        if body is not None:
            table = run_unsliced(make_table(body, header, header.base_offset, WorkSlice()))
            table.find(NOW_MS)
            maximum = decompressed_bytes_max(header.size, MESSAGE_BYTES_MAX)
            for _ in records_of(view, header, max_decompressed_bytes=maximum):
                pass
        with suppress(Refusal):
            check_client_append(CONSUMER_OFFSETS, 0, 50, view)
        if header.is_control:
            read_marker(view, header)
    return 0


def bodies() -> list[bytes]:
    return [
        b"".join(map(tiny_record, range(20))),
        b"".join(tiny_record(number, headers=3, timestamp_delta=number) for number in range(3)),
        KEYLESS,
        tiny_record(0, timestamp_delta=-1_000),
    ]


def seeds() -> list[bytes]:
    found = []
    for codec in Compression:
        found += [
            bytes((0,)) + batch(3, compression=codec),
            bytes((ALL_RECORDS,)) + batch(1, size=300, compression=codec),
        ]
        found.append(bytes((COMPACTED,)) + crafted(bodies()[0], 20, codec))
        found += [bytes((ALL_RECORDS | number << CODEC_SHIFT,)) + batch(2, compression=codec) for number in range(6)]
    found.append(bytes((APPEND_TIME | ALL_RECORDS,)) + batch(2))
    found += [bytes((0,)) + produced(7, 0, 2), bytes((0,)) + produced(7, 5, 2, transactional=True)]
    return found


def stored_seeds() -> list[bytes]:
    markers = [bytes((0,)) + marker(7, commit=commit) for commit in (True, False)]
    return [*seeds(), *markers, bytes((0,)) + batch(2) + batch(3, base_offset=2, timestamp_type=1)]


def mutate(data: bytes, rng: Random) -> bytes:
    """Damage the bytes of a batch, or its records before they are compressed."""
    settings = bytes((rng.choice((data[0] if data else 0, rng.randrange(256))),))
    if rng.random() < 0.5:
        return settings + damaged(data[1:], rng)
    codec = rng.choice(list(Compression))
    count = 20
    try:
        header = read_header(data, 1)
        packed = data[1 + HEADER_BYTES : 1 + header.size]
        body = bytes(decompress(header.compression, packed, max_bytes=MESSAGE_BYTES_MAX))
    except Malformed:
        body = rng.choice(bodies())
    else:
        count = header.record_count
    if rng.random() < 0.3:
        body = body * rng.randint(1, 50)
    count = rng.choice((count, count, 1, 2, 20, 1_000, 9_000, 10_000, 2**31 - 1))
    changed = crafted(damaged(body, rng), 1, codec, attributes=rng.choice((0, 0, 0, 8, 16, 32, 48, 64)))
    header = read_header(changed)
    header = replace(header, record_count=count, last_offset_delta=count - 1)
    if rng.random() < 0.3:
        header = replace(header, base_timestamp=rng.choice((-1, 0, 2**63 - 1, -(2**63))))
    return settings + seal_batch(header, compressed_again(changed, rng))


def compressed_again(changed: bytes, rng: Random) -> bytes:
    """Return the records of a batch, rarely with damage behind the compression."""
    packed = changed[HEADER_BYTES:]
    return damaged(packed, rng) if rng.random() < 0.2 else packed


def mutate_strictly(data: bytes, rng: Random) -> bytes:
    try:
        return mutate(data, rng)
    except Malformed:
        return damaged(data, rng)


PRODUCED = Target(
    "produced-batches", run_produced, seeds, typed=(Refusal,), memory=EXPANSION, steps=WORK, bytes_max=8 * KIB,
    mutate=mutate_strictly,
)  # fmt: skip
STORED = Target(
    "stored-batches", run_stored, stored_seeds, typed=(Malformed, Refusal), memory=EXPANSION, steps=WORK,
    bytes_max=8 * KIB, mutate=mutate_strictly,
)  # fmt: skip
