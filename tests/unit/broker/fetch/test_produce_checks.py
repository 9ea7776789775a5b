import pytest

from odradek.broker.fetch.produce_checks import is_transactional, producer_of, single_batch
from odradek.protocol.batch import build_batch
from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode, Refusal

RECORDS = [(b"k", b"v", 1_700_000_000_000, ())]
BATCH = build_batch(RECORDS, producer_id=7, producer_epoch=3, base_sequence=11, transactional=True)
PLAIN = build_batch(RECORDS)


def with_byte(batch: bytes, at: int, value: int) -> bytes:
    return batch[:at] + bytes([value]) + batch[at + 1 :]


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
def test_what_is_no_single_batch_is_refused(records: bytes | None, error: ErrorCode) -> None:
    with pytest.raises(Refusal) as refused:
        single_batch(records, 13)
    assert refused.value.error is error


def test_a_whole_batch_is_taken_as_it_is_and_a_partial_tail_is_cut() -> None:
    assert single_batch(PLAIN, 3) is PLAIN
    assert bytes(single_batch(PLAIN + BATCH[:40], 3)) == PLAIN


@pytest.mark.parametrize(("version", "taken"), [(3, False), (6, False), (7, True), (13, True)])
def test_zstd_needs_version_seven(version: int, taken: bool) -> None:
    batch = build_batch(RECORDS, compression=Compression.ZSTD)
    if taken:
        assert single_batch(batch, version) is batch
    else:
        with pytest.raises(Refusal) as refused:
            single_batch(batch, version)
        assert refused.value.error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_transactional_is_what_the_attributes_say() -> None:
    assert is_transactional(BATCH)
    assert not is_transactional(PLAIN)
    assert not is_transactional(None)
    assert not is_transactional(BATCH[:30])


def test_the_producer_stands_in_the_header() -> None:
    assert producer_of(BATCH) == (7, 3, 11)
    with pytest.raises(Refusal) as refused:
        producer_of(with_byte(BATCH, 16, 1))
    assert refused.value.error is ErrorCode.CORRUPT_MESSAGE
