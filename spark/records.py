"""Rows of a batch as records: their columns, target partitions and checksums."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client import ProducerRecord
from odradek.client.producer.partitioner import partition_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    Headers = tuple[tuple[str, bytes | None], ...]

COLUMNS: Final = ("topic", "partition", "key", "value", "headers", "timestamp")
"""Columns of a normalized row. `key` and `value` are bytes, `timestamp` is in milliseconds since 1970."""
CHECKSUM_MODULUS: Final = 2**63
"""Sums of checksums are reduced by this number, so that they fit into a bigint of Spark."""


class SinkRow(NamedTuple):
    """A row with the columns COLUMNS. A header is a struct of key and value, as PySpark passes it."""

    topic: str | None
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Collection[Mapping[str, object] | None] | None
    timestamp: int | None


def target_of(row: SinkRow, partitions: int) -> int:
    """Return the partition index of a row in a topic of `partitions` partitions.

    An explicit partition has precedence. A key determines the partition as in Kafka's producers. Without a key the
    value does: a repeated task must assign each row to the same partition, also if Spark changed the order of the rows.
    Raise ValueError if the topic does not have the explicit partition, a header has no key, or the timestamp is before
    1970.
    """
    if row.headers and any(each is None or each["key"] is None for each in row.headers):
        raise ValueError(f"topic {row.topic}: a header has no key; Kafka's headers need one")
    if row.timestamp is not None and row.timestamp < 0:
        raise ValueError(
            f"topic {row.topic}: the timestamp {row.timestamp} ms is before 1970; use null for the time of the write"
        )
    if row.partition is not None:
        if not 0 <= row.partition < partitions:
            raise ValueError(f"topic {row.topic} has no partition {row.partition}; it has {partitions}")
        return row.partition
    if row.key is not None:
        return partition_of(row.key, partitions)
    return zlib.crc32(row.value or b"") % partitions


def checksum_of(row: SinkRow) -> int:
    """Return the checksum of all columns. The checksum of a batch is the sum over its rows, which no order changes."""
    content = content_checksum(row.key, row.value, _headers(row))
    return zlib.crc32(f"{row.topic}/{row.partition}/{row.timestamp}".encode(), content)


def content_checksum(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the checksum of what a record has from its row, whatever timestamp the topic gives it."""
    found = 0
    for part in (key, value, *(part for name, data in headers for part in (name.encode(), data))):
        found = zlib.crc32(
            b"" if part is None else part, zlib.crc32(b"%d" % (-1 if part is None else len(part)), found)
        )
    return found


def record_of(row: SinkRow, partition: int) -> ProducerRecord:
    """Return the record of a row."""
    return ProducerRecord(row.key, row.value, _headers(row), partition, row.timestamp)


def _headers(row: SinkRow) -> Headers:
    return tuple((str(each["key"]), _bytes(each["value"])) for each in row.headers or () if each is not None)


def _bytes(value: object) -> bytes | None:
    return bytes(value) if isinstance(value, bytes | bytearray) else None
