"""Check the records of a Produce request: exactly one batch, in a format that the version of Produce permits.

A request that names a partition more than once keeps one batch for it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from odradek.broker.requests.splitting import ELEMENTS_PER_PART
from odradek.protocol.batch import HEADER_BYTES, read_header
from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.schema import Buffer

if TYPE_CHECKING:
    from uuid import UUID

MAGIC_POSITION: Final = 16
"""Position of the magic byte, in bytes from the start of a batch. It is the same in all formats
(DefaultRecordBatch)."""
ATTRIBUTES_LOW_POSITION: Final = 22
"""Position of the lower attributes byte in a batch of format v2, in bytes."""
LENGTH_FIELD: Final = slice(8, 12)
"""Bytes of a batch that hold batch_length, a signed 32-bit integer."""
LOG_OVERHEAD_BYTES: Final = 12
"""Bytes of base offset and batch_length, which batch_length does not count (Records.LOG_OVERHEAD)."""
BATCH_LENGTH_MIN: Final = 14
"""Minimum batch_length in bytes, for every magic (LegacyRecord.RECORD_OVERHEAD_V0)."""
BATCH_PREFIX_BYTES: Final = 17
"""Bytes up to and including the magic: as many as Kafka needs to find the end of a batch
(Records.HEADER_SIZE_UP_TO_MAGIC)."""
CODEC_MASK: Final = 0x07
"""Bits of the lower attributes byte that hold the compression codec."""
TRANSACTIONAL_BIT: Final = 0x10
"""Bit of the lower attributes byte that marks a transactional batch."""
ZSTD_MIN_VERSION: Final = 7
"""First version of Produce that accepts zstd (KIP-110). An older producer cannot create a batch that old consumers
cannot read."""


def is_transactional(records: Buffer | None) -> bool:
    """Return True if the batch has the transactional attribute.

    The request's `transactional_id` does not count: a producer could evade the ACL of the transactional id with a null
    there (CVE-2018-17196).
    """
    return (
        records is not None
        and len(records) >= HEADER_BYTES
        and bool(records[ATTRIBUTES_LOW_POSITION] & TRANSACTIONAL_BIT)
    )


def single_batch(records: Buffer | None, version: int) -> Buffer:
    """Return the one batch in `records`, without a partial batch after it, which Kafka drops as well.

    Raise Refusal(INVALID_RECORD) if there is no whole batch, more than one, or one of an older format. Raise
    Refusal(CORRUPT_MESSAGE) if the header is not plausible, and Refusal(UNSUPPORTED_COMPRESSION_TYPE) if the batch uses
    zstd in a version of Produce below ZSTD_MIN_VERSION.
    """
    size = _batch_size(records, 0)
    if records is None or size is None:
        raise Refusal(ErrorCode.INVALID_RECORD)
    if records[MAGIC_POSITION] != 2 or size < HEADER_BYTES:
        raise Refusal(ErrorCode.INVALID_RECORD if records[MAGIC_POSITION] < 2 else ErrorCode.CORRUPT_MESSAGE)
    if version < ZSTD_MIN_VERSION and records[ATTRIBUTES_LOW_POSITION] & CODEC_MASK == Compression.ZSTD:
        raise Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if size == len(records):
        return records
    if _batch_size(records, size) is not None:
        raise Refusal(ErrorCode.INVALID_RECORD)
    return memoryview(records)[:size]


def _batch_size(records: Buffer | None, start: int) -> int | None:
    """Return the size in bytes of the batch at `start`; None if `records` does not contain all of it."""
    if records is None or len(records) - start < BATCH_PREFIX_BYTES:
        return None
    length = int.from_bytes(records[start + LENGTH_FIELD.start : start + LENGTH_FIELD.stop], "big", signed=True)
    if length < BATCH_LENGTH_MIN:
        raise Refusal(ErrorCode.CORRUPT_MESSAGE)
    size = LOG_OVERHEAD_BYTES + length
    return size if size <= len(records) - start else None


def producer_of(records: Buffer) -> tuple[int, int, int]:
    """Return producer id, producer epoch and first sequence number of the batch at the start of `records`.

    Raise Refusal(CORRUPT_MESSAGE) if its header is malformed.
    """
    try:
        header = read_header(records)
    except Malformed as error:
        raise Refusal(ErrorCode.CORRUPT_MESSAGE) from error
    return header.producer_id, header.producer_epoch, header.base_sequence


def keep_last_batches(request: ProduceRequest) -> Iterator[None]:
    """Leave one batch per partition in `request`: the last one, at the position of the first one.

    Entries of one topic become one entry. Yield after each ELEMENTS_PER_PART elements.
    """
    topics: dict[tuple[str, UUID], dict[int, PartitionProduceData]] = {}
    entries: list[TopicProduceData] = []
    count = 0
    for topic in request.topic_data:
        key = (topic.name, topic.topic_id)
        batches = topics.get(key)
        if batches is None:
            batches = topics[key] = {}
            entries.append(topic)
        count += 1
        for data in topic.partition_data:
            batches[data.index] = data
            count += 1
            if count >= ELEMENTS_PER_PART:
                count = 0
                yield
        if count >= ELEMENTS_PER_PART:
            count = 0
            yield
    for count, (topic, batches) in enumerate(zip(entries, topics.values(), strict=True), 1):
        topic.partition_data = list(batches.values())
        if not count % ELEMENTS_PER_PART:
            yield
    request.topic_data = entries
