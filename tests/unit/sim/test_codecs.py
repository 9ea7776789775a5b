"""Compression of the simulated clients, against the broker's, and the reader of compressed batches."""

import pytest

from odradek.protocol.compression import Compression
from odradek.protocol.compression import compress as broker_compress
from odradek.protocol.compression import decompress as broker_decompress
from odradek.storage.config import LogConfig
from tests.sim.checkers.batches import HEADER_BYTES, Unreadable, read_batches
from tests.sim.options.batch_options import FUTURE_MS, OLD_MS
from tests.sim.options.run_options import generate_options
from tests.sim.workloads.codecs import CODEC_NAMES, compress, decompress
from tests.sim.workloads.encode import encode_batch

DATA = b"ledger" * 100 + bytes(range(256))
RECORDS = [(b"key", b"value"), (None, b"." * 200), (b"key", None)]
SEEDS = 60


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_client_and_broker_read_each_other(codec: int) -> None:
    packed = compress(codec, DATA)
    assert packed != DATA
    assert broker_decompress(Compression(codec), packed, max_bytes=len(DATA)) == DATA
    assert decompress(codec, broker_compress(Compression(codec), DATA)) == DATA


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_reader_finds_the_records_of_a_compressed_batch(codec: int) -> None:
    (batch,) = read_batches(encode_batch(RECORDS, timestamp=1, codec=codec), check_crc=True)
    assert (batch.attributes, batch.records) == (codec, RECORDS)


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_batch_with_damaged_compression_is_unreadable(codec: int) -> None:
    data = bytearray(encode_batch(RECORDS, timestamp=1, codec=codec))
    data[HEADER_BYTES:] = bytes(len(data) - HEADER_BYTES)
    with pytest.raises(Unreadable):
        list(read_batches(data))


def test_runs_differ_in_codecs_timestamps_and_expiration() -> None:
    generated = [generate_options(seed) for seed in range(SEEDS)]
    batches = [options.batches for options in generated if options.batches is not None]
    assert 0 < len(batches) < SEEDS
    assert {codec for each in batches for codec in each.codecs} == set(CODEC_NAMES)
    assert any(each.old for each in batches)
    assert any(each.future for each in batches)
    assert {options.producer_expiration_ms > 0 for options in generated} == {True, False}


def test_no_timestamp_is_refused_or_expires() -> None:
    """The default limits of a topic, with a step of a broker's clock."""
    step_ms = 60_000
    assert FUTURE_MS + step_ms < LogConfig().message_timestamp_after_max_ms
    assert OLD_MS + step_ms < LogConfig().retention_ms
