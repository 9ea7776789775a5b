"""What can be told about the bytes of a produce without its partition: one batch, in a format that the version allows."""

from typing import Final

from odradek.protocol.batch import HEADER_BYTES, read_header
from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.schema import Buffer

MAGIC_AT: Final = 16
ATTRIBUTES_LOW_AT: Final = 22
LENGTH_AT: Final = slice(8, 12)
LOG_OVERHEAD_BYTES: Final = 12
"""Base offset and length, which batch_length does not count."""
BATCH_LENGTH_MIN: Final = 14
"""Kafka's smallest plausible batch_length, whatever the magic (LegacyRecord)."""
BATCH_PREFIX_BYTES: Final = 17
"""Up to and including the magic: what is needed to know where a batch ends."""
CODEC_MASK: Final = 0x07
TRANSACTIONAL_BIT: Final = 0x10
ZSTD_MIN_VERSION: Final = 7
"""KIP-110: consumers that do not know zstd must be able to tell by the produce version that nobody used it."""


def is_transactional(records: Buffer | None) -> bool:
    """Judged by the attributes of the batch, never by the fields of the request (CVE-2018-17196)."""
    return records is not None and len(records) >= HEADER_BYTES and bool(records[ATTRIBUTES_LOW_AT] & TRANSACTIONAL_BIT)


def single_batch(records: Buffer | None, version: int) -> Buffer:
    """The one whole batch that `records` must consist of; a partial batch behind it is cut off, as Kafka does.

    Raises Refusal: INVALID_RECORD, CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    size = _batch_size(records, 0)
    if records is None or size is None:
        raise Refusal(ErrorCode.INVALID_RECORD)
    if records[MAGIC_AT] != 2 or size < HEADER_BYTES:
        raise Refusal(ErrorCode.INVALID_RECORD if records[MAGIC_AT] < 2 else ErrorCode.CORRUPT_MESSAGE)
    if version < ZSTD_MIN_VERSION and records[ATTRIBUTES_LOW_AT] & CODEC_MASK == Compression.ZSTD:
        raise Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if size == len(records):
        return records
    if _batch_size(records, size) is not None:
        raise Refusal(ErrorCode.INVALID_RECORD)
    return memoryview(records)[:size]


def _batch_size(records: Buffer | None, at: int) -> int | None:
    """Bytes of the batch that starts at `at`; None when there is none, or not all of it."""
    if records is None or len(records) - at < BATCH_PREFIX_BYTES:
        return None
    length = int.from_bytes(records[at + LENGTH_AT.start : at + LENGTH_AT.stop], "big", signed=True)
    if length < BATCH_LENGTH_MIN:
        raise Refusal(ErrorCode.CORRUPT_MESSAGE)
    size = LOG_OVERHEAD_BYTES + length
    return size if size <= len(records) - at else None


def producer_of(records: Buffer) -> tuple[int, int, int]:
    """(producer id, producer epoch, first sequence) of the batch at the start of `records`."""
    try:
        header = read_header(records)
    except Malformed as error:
        raise Refusal(ErrorCode.CORRUPT_MESSAGE) from error
    return header.producer_id, header.producer_epoch, header.base_sequence
