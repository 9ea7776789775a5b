"""Compression codecs: limits of the decompressed size, frames of other writers, and malformed input."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.compression import (
    BLOCKS_MIN,
    MEMBERS_MAX,
    Compression,
    ExpansionExceeded,
    compress,
    decompress,
)
from odradek.protocol.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable

CODECS = list(Compression)
COMPRESSING_CODECS = [codec for codec in Compression if codec is not Compression.NONE]
MIB = 1_048_576

CONTENT = st.binary(max_size=300) | st.builds(
    lambda piece, times: piece * times, st.binary(max_size=50), st.integers(0, 4_000)
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CODECS), CONTENT)
def test_content_is_decompressed_within_its_exact_size_only(codec: Compression, content: bytes) -> None:
    packed = compress(codec, content)
    assert decompress(codec, memoryview(packed), max_bytes=len(content)) == content
    if content:
        with pytest.raises(Malformed):
            decompress(codec, packed, max_bytes=len(content) - 1)


LEVELS = [
    (Compression.GZIP, (1, 3, -1)),
    (Compression.LZ4, (9, 3, 12)),  # level 9 is the fastest one
    (Compression.ZSTD, (-100, 3, 19)),
]
WORDS = [b"%d" % (number * number) for number in range(700, 1_000)]
TEXT = b" ".join(WORDS[number * number % 293] + WORDS[number**3 % 277] for number in range(20_000))


@pytest.mark.parametrize(("codec", "levels"), LEVELS)
def test_a_higher_level_compresses_better(codec: Compression, levels: tuple[int, ...]) -> None:
    packed = [compress(codec, TEXT, level) for level in levels]
    assert [decompress(codec, content, max_bytes=len(TEXT)) for content in packed] == [TEXT] * 3
    sizes = [len(content) for content in packed]
    assert sizes == sorted(sizes, reverse=True)
    assert len(dict.fromkeys(sizes)) == 3


@settings(max_examples=60, deadline=None)
@given(CONTENT, st.integers(1, 17))
def test_every_level_of_lz4_writes_frames_that_another_library_reads(content: bytes, level: int) -> None:
    packed = compress(Compression.LZ4, content, level)
    assert decompress(Compression.LZ4, packed, max_bytes=len(content)) == content
    assert lz4.frame.decompress(packed) == content
    assert lz4.frame.get_frame_info(packed)["block_linked"] is False


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(COMPRESSING_CODECS), st.binary(max_size=80), st.binary(max_size=12), st.integers(0, 60))
def test_random_input_is_malformed_or_within_the_limit(
    codec: Compression, content: bytes, noise: bytes, position: int
) -> None:
    packed = compress(codec, content)
    for data in (noise, packed[:position] + noise, packed[:position] + noise + packed[position:]):
        try:
            assert len(decompress(codec, data, max_bytes=100)) <= 100
        except Malformed:
            continue


@pytest.mark.parametrize("codec", COMPRESSING_CODECS)
def test_truncated_input_is_malformed(codec: Compression) -> None:
    packed = compress(codec, bytes(range(256)) * 3)
    valid_sizes = {len(packed)}
    if codec is Compression.SNAPPY:
        valid_sizes.add(16)  # the header is an empty stream
    for size in range(len(packed)):
        if size not in valid_sizes:
            with pytest.raises(Malformed):
                decompress(codec, packed[:size], max_bytes=MIB)


@pytest.mark.parametrize("codec", COMPRESSING_CODECS)
def test_memory_is_bounded_by_the_limit_and_not_by_the_content(codec: Compression) -> None:
    compressed = compress(codec, bytes(64 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            decompress(codec, compressed, max_bytes=MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * MIB


def test_gzip_members_are_one_stream_with_one_limit() -> None:
    two = gzip.compress(b"a" * 100) + gzip.compress(b"b" * 100)
    assert decompress(Compression.GZIP, two, max_bytes=200) == b"a" * 100 + b"b" * 100
    with pytest.raises(Malformed):
        decompress(Compression.GZIP, two, max_bytes=199)
    with pytest.raises(Malformed):
        decompress(Compression.GZIP, zlib.compress(b"no gzip header"), max_bytes=100)


def test_raw_and_framed_snappy_are_decompressed() -> None:
    content = b"snappy" * 1_000
    plain = bytes(cramjam.snappy.compress_raw(content))
    assert decompress(Compression.SNAPPY, plain, max_bytes=6_000) == content
    framed = compress(Compression.SNAPPY, content * 20)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Compression.SNAPPY, framed, max_bytes=120_000) == content * 20


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff\x0f" + b"\x00",  # a declared size of 4 GiB
        b"\x80\x80\x80\x80\x80\x01",  # length of six bytes
        b"\x90\x4e\x00a",  # 10,000 bytes from two bytes
        b"\x82SNAPPY\x00\x00\x00\x00\x01",  # partial header
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x7f\xff\xff\xff",  # block past the end
    ],
)
def test_invalid_snappy_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decompress(Compression.SNAPPY, data, max_bytes=2**31)


def test_lz4_frames_have_the_form_that_kafkas_java_client_accepts() -> None:
    packed = compress(Compression.LZ4, bytes(200_000))
    assert packed[:4] == bytes.fromhex("04224d18")
    assert packed[4] & 0xE0 == 0x60  # version 1 with independent blocks: the Java client refuses dependent ones
    assert packed.endswith(bytes(4))
    assert bytes(cramjam.lz4.decompress(packed)) == bytes(200_000)  # this also verifies the checksum of the header


def test_lz4_frames_of_another_writer_are_decompressed() -> None:
    content = bytes(range(256)) * 2_000
    framed = bytes(cramjam.lz4.compress(content))  # dependent blocks and a content checksum
    assert decompress(Compression.LZ4, framed, max_bytes=len(content)) == content
    skippable = bytes.fromhex("502a4d18") + (3).to_bytes(4, "little") + b"abc"
    assert decompress(Compression.LZ4, skippable + framed, max_bytes=len(content)) == content


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes.fromhex("04224d18"),
        bytes.fromhex("04224d18603082"),  # block size id 3
        bytes.fromhex("04224d18604082ffffff7f"),  # block of 2 GiB
        bytes.fromhex("04224d1860408201000080"),  # stored block of one byte, which is missing
        bytes.fromhex("04224d186040830000000000"),  # wrong header checksum
    ],
)
def test_invalid_lz4_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decompress(Compression.LZ4, data, max_bytes=MIB)


def zstd_frame(window_byte: int) -> bytes:
    return (
        bytes.fromhex("28b52ffd") + bytes((0x00, window_byte)) + bytes.fromhex("010000")
    )  # one last raw block, which is empty


def test_zstd_frame_with_a_large_window_is_malformed() -> None:
    assert decompress(Compression.ZSTD, zstd_frame((20 - 10) << 3), max_bytes=10) == b""
    with pytest.raises(Malformed, match="window"):
        decompress(Compression.ZSTD, zstd_frame((28 - 10) << 3), max_bytes=10)


def test_zstd_frames_are_one_stream_and_the_declared_size_is_checked_first() -> None:
    content = b"zstd" * 10_000
    packed = bytes(cramjam.zstd.compress(content, 3))
    assert decompress(Compression.ZSTD, packed + packed, max_bytes=80_000) == content * 2
    with pytest.raises(Malformed):
        decompress(Compression.ZSTD, packed + packed, max_bytes=79_999)
    stated = bytes.fromhex("28b52ffd") + b"\xe0" + (2**40).to_bytes(8, "little") + bytes.fromhex("010000")
    with pytest.raises(Malformed, match="exceeds the limit"):
        decompress(Compression.ZSTD, stated, max_bytes=MIB)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes.fromhex("28b52ffd"),
        bytes.fromhex("28b52ffd0050ffffff"),
        bytes.fromhex("28b52ffd005001"),
        b"not a frame",
    ],
)
def test_invalid_zstd_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decompress(Compression.ZSTD, data, max_bytes=MIB)


def lz4_blocks(count: int) -> bytes:
    return (
        bytes.fromhex("04224d18604082")
        + (1 | 0x8000_0000).to_bytes(4, "little").join([b""] + [b"a"] * count)
        + bytes(4)
    )


def zstd_blocks(count: int) -> bytes:
    return bytes.fromhex("28b52ffd0050") + bytes.fromhex("000000") * (count - 1) + bytes.fromhex("010000")


def snappy_blocks(count: int) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(b"a"))
    header = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    return header + (len(block).to_bytes(4, "big") + block) * count


@pytest.mark.parametrize(
    ("codec", "blocks"),
    [(Compression.LZ4, lz4_blocks), (Compression.ZSTD, zstd_blocks), (Compression.SNAPPY, snappy_blocks)],
)
def test_number_of_blocks_is_bounded_by_the_limit_of_the_output(
    codec: Compression, blocks: Callable[[int], bytes]
) -> None:
    """Python code runs for each block, also for blocks without content."""
    few = BLOCKS_MIN
    content = decompress(codec, blocks(few - 1), max_bytes=1_000)
    assert content == (b"" if codec is Compression.ZSTD else b"a" * (few - 1))
    with pytest.raises(ExpansionExceeded, match="blocks"):
        decompress(codec, blocks(few + 1), max_bytes=1_000)
    assert len(decompress(codec, blocks(few + 1), max_bytes=100_000)) == (0 if codec is Compression.ZSTD else few + 1)


def test_number_of_gzip_members_is_bounded() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"a") * MEMBERS_MAX, max_bytes=MIB) == b"a" * MEMBERS_MAX
    with pytest.raises(ExpansionExceeded, match="members"):
        decompress(Compression.GZIP, gzip.compress(b"a") * (MEMBERS_MAX + 1), max_bytes=MIB)


@pytest.mark.parametrize("codec", COMPRESSING_CODECS)
def test_excess_of_the_limit_differs_from_damage(codec: Compression) -> None:
    with pytest.raises(ExpansionExceeded):
        decompress(codec, compress(codec, bytes(MIB)), max_bytes=MIB - 1)
