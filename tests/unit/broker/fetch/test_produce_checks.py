import pytest

from odradek.broker.fetch.produce_checks import is_transactional, keep_last_batches, producer_of, single_batch
from odradek.broker.requests.splitting import ELEMENTS_PER_PART
from odradek.protocol.batch import build_batch
from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

RECORDS = [(b"k", b"v", 1_700_000_000_000, ())]
BATCH = build_batch(RECORDS, producer_id=7, producer_epoch=3, base_sequence=11, transactional=True)
PLAIN = build_batch(RECORDS)


def with_byte(batch: bytes, index: int, value: int) -> bytes:
    return batch[:index] + bytes([value]) + batch[index + 1 :]


def with_length(batch: bytes, length: int) -> bytes:
    return batch[:8] + length.to_bytes(4, "big", signed=True) + batch[12:]


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (PLAIN[:16], ErrorCode.INVALID_RECORD),
        (PLAIN[:-1], ErrorCode.INVALID_RECORD),  # a partial batch is no batch
        (PLAIN + PLAIN, ErrorCode.INVALID_RECORD),
        (with_byte(PLAIN, 16, 1), ErrorCode.INVALID_RECORD),
        (with_byte(PLAIN, 16, 3), ErrorCode.CORRUPT_MESSAGE),
        (with_byte(PLAIN, 16, 255), ErrorCode.CORRUPT_MESSAGE),
        (with_length(PLAIN, 13), ErrorCode.CORRUPT_MESSAGE),
        (with_length(PLAIN, -1), ErrorCode.CORRUPT_MESSAGE),
        (with_length(PLAIN, 20), ErrorCode.CORRUPT_MESSAGE),  # long enough to be a message, too short for a batch
        (PLAIN + with_length(PLAIN, 0), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_records_other_than_one_batch_are_refused(records: bytes | None, error: ErrorCode) -> None:
    with pytest.raises(Refusal) as caught:
        single_batch(records, 13)
    assert caught.value.error is error


def test_whole_batch_is_returned_unchanged_and_a_partial_tail_removed() -> None:
    assert single_batch(PLAIN, 3) is PLAIN
    assert bytes(single_batch(PLAIN + BATCH[:40], 3)) == PLAIN


@pytest.mark.parametrize(("version", "accepted"), [(3, False), (6, False), (7, True), (13, True)])
def test_zstd_before_v7_is_refused(version: int, accepted: bool) -> None:
    batch = build_batch(RECORDS, compression=Compression.ZSTD)
    if accepted:
        assert single_batch(batch, version) is batch
    else:
        with pytest.raises(Refusal) as caught:
            single_batch(batch, version)
        assert caught.value.error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_is_transactional_reads_the_batch_attributes() -> None:
    assert is_transactional(BATCH)
    assert not is_transactional(PLAIN)
    assert not is_transactional(None)
    assert not is_transactional(BATCH[:30])


def test_producer_of_reads_the_batch_header() -> None:
    assert producer_of(BATCH) == (7, 3, 11)
    with pytest.raises(Refusal) as caught:
        producer_of(with_byte(BATCH, 16, 1))
    assert caught.value.error is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("topics", [1, 3 * ELEMENTS_PER_PART])
def test_last_batches_of_a_large_request_are_found_in_slices(topics: int) -> None:
    """A request in parts could otherwise append both batches: they can be in different parts."""
    count = 3 * ELEMENTS_PER_PART
    rows = [(f"t-{number % topics}", number, bytes([turn])) for turn in range(2) for number in range(count)]
    request = ProduceRequest(
        topic_data=[TopicProduceData(name, partition_data=[PartitionProduceData(i, data)]) for name, i, data in rows]
    )
    turns = sum(1 for _ in keep_last_batches(request))
    assert turns >= 2 * count // ELEMENTS_PER_PART
    assert len(request.topic_data) == topics
    assert [data.records for topic in request.topic_data for data in topic.partition_data] == [b"\x01"] * count
