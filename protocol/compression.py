"""Compress and decompress record batches with the four codecs of Kafka.

The output never exceeds `max_bytes`, and decompression allocates at most twice as much. For zstd and lz4, the structure
of the frame gives an upper bound of the output. Snappy blocks contain their output size. gzip is decompressed step by
step. The number of blocks is bounded too: Python code runs for each of them.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from struct import Struct as Packer
from typing import TYPE_CHECKING, Final

import cramjam

from odradek.protocol.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.protocol.schema import Buffer

GZIP_WINDOW_BITS: Final = 31  # 15 for the window, 16 for a gzip header
GZIP_LEVEL: Final = -1  # zlib's default, which is 6
GZIP_INPUT_BYTES: Final = 1024 * 1024
"""Maximum bytes that zlib compresses in one call. The buffers of one call take up to three times its output."""
LZ4_LEVEL: Final = 9  # in Kafka, level 9 selects the fast compressor, and every other level the high compressor
ZSTD_LEVEL: Final = 3

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, compatible from version 1 on
XERIAL_BLOCK_BYTES: Final = 32_768
SNAPPY_RATIO_MAX: Final = 64  # a copy element produces at most 64 bytes from at least two bytes
SNAPPY_LENGTH_BYTES_MAX: Final = 5

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
# Kafka's Java reader accepts only frames with independent blocks. The bytes after the magic are: version 1 with
# independent blocks and no checksums, blocks of 64 KiB, and the second byte of the xxh32 of these two bytes.
LZ4_HEADER: Final = LZ4_MAGIC + b"\x60\x40\x82"
LZ4_BLOCK_BYTES: Final = 65_536
LZ4_BLOCK_BYTES_BY_ID: Final = {4: 65_536, 5: 262_144, 6: 1_048_576, 7: 4_194_304}
LZ4_RATIO_MAX: Final = 255
LZ4_FRAME_HEADER_BYTES: Final = 7
LZ4_STORED: Final = 0x8000_0000
LZ4_END_MARK: Final = b"\x00\x00\x00\x00"

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
ZSTD_BLOCK_BYTES_MAX: Final = 131_072
ZSTD_WINDOW_BYTES_MAX: Final = 134_217_728  # 2**27: the window of the highest level, and the maximum of Kafka's reader
SKIPPABLE_MAGIC: Final = b"\x2a\x4d\x18"  # of skippable lz4 and zstd frames, after a first byte of 0x50 to 0x5f

MEMBERS_MAX: Final = 64
"""Maximum gzip members of one batch. Each further member copies the rest of the input. Stock producers write one."""
BLOCKS_MIN: Final = 64
"""Blocks and frames that each batch may have, whatever its size. The walk over one block takes about 0.5 microseconds.

Stock producers write blocks of 32 KiB to 128 KiB.
"""
BYTES_PER_BLOCK_MIN: Final = 1024
"""Bytes of `max_bytes` that permit one more block."""

_U32_BIG: Final = Packer(">I")
_U32_LITTLE: Final = Packer("<I")


class ExpansionExceeded(Malformed):
    """The decompressed data exceeds the limit of the caller, or has more blocks than that limit permits."""


class Compression(IntEnum):
    """Compression codec: bits 0 to 2 of the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` in the framing of Kafka's producers: xerial for snappy, frames with independent blocks for lz4.

    `level` has the values of Kafka's `compression.<codec>.level`. None is the default level of the codec.
    """
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.GZIP:
        return _gzip_compress(memoryview(data), GZIP_LEVEL if level is None else level)
    if codec is Compression.SNAPPY:
        return _xerial_compress(memoryview(data))
    if codec is Compression.LZ4:
        return _lz4_compress(memoryview(data), LZ4_LEVEL if level is None else level)
    return bytes(cramjam.zstd.compress(data, ZSTD_LEVEL if level is None else level))


def decompress(codec: Compression, data: Buffer, *, max_bytes: int) -> bytes:
    """Decompress `data`. Raise Malformed if it is invalid, ExpansionExceeded if the output would exceed `max_bytes`."""
    view = memoryview(data)
    try:
        return _DECOMPRESSORS[codec](view, max_bytes)
    except (cramjam.DecompressionError, zlib.error, struct.error, IndexError) as error:
        raise Malformed(f"{codec.name.lower()}: {error}") from error


def _check(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ExpansionExceeded(f"decompressed size {size} exceeds the limit of {max_bytes} bytes")


def _check_blocks(count: int, max_bytes: int) -> None:
    limit = BLOCKS_MIN + max_bytes // BYTES_PER_BLOCK_MIN
    if count > limit:
        raise ExpansionExceeded(f"the data has more than {limit} blocks")


def _stored(data: memoryview, max_bytes: int) -> bytes:
    _check(len(data), max_bytes)
    return bytes(data)


def _gzip_compress(data: memoryview, level: int) -> bytes:
    if len(data) <= GZIP_INPUT_BYTES:
        return zlib.compress(data, level, GZIP_WINDOW_BITS)
    deflater = zlib.compressobj(level, zlib.DEFLATED, GZIP_WINDOW_BITS)
    pieces = [
        deflater.compress(data[start : start + GZIP_INPUT_BYTES]) for start in range(0, len(data), GZIP_INPUT_BYTES)
    ]
    pieces.append(deflater.flush())
    return b"".join(pieces)


def _gzip(data: memoryview, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    remaining = max_bytes
    for _ in range(MEMBERS_MAX):  # concatenated members are one stream
        inflater = zlib.decompressobj(GZIP_WINDOW_BITS)
        piece = inflater.decompress(data, remaining + 1)
        remaining -= len(piece)
        _check(max_bytes - remaining, max_bytes)
        pieces.append(piece)
        if not inflater.eof:
            raise Malformed("gzip: the stream is incomplete")
        if not inflater.unused_data:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        data = data[len(data) - len(inflater.unused_data) :]
    raise ExpansionExceeded(f"gzip: the stream has more than {MEMBERS_MAX} members")


def _xerial_compress(data: memoryview) -> bytes:
    pieces: list[bytes] = [XERIAL_HEADER]
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_BYTES]))
        pieces += (_U32_BIG.pack(len(block)), block)
    return b"".join(pieces)


def _snappy(data: memoryview, max_bytes: int) -> bytes:
    """Decompress snappy-java's framing, or one block without framing."""
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _snappy_block(data, max_bytes)
    pieces: list[bytes] = []
    position, remaining = len(XERIAL_HEADER), max_bytes
    if len(data) < position:
        raise Malformed("snappy: the header of the stream is incomplete")
    while position < len(data):
        (size,) = _U32_BIG.unpack_from(data, position)
        position += 4
        if size > len(data) - position:
            raise Malformed(f"snappy: block of {size} bytes at byte {position} exceeds the stream")
        piece = _snappy_block(data[position : position + size], remaining)
        remaining -= len(piece)
        position += size
        pieces.append(piece)
        _check_blocks(len(pieces), max_bytes)
    return b"".join(pieces)


def _snappy_block(block: memoryview, max_bytes: int) -> bytes:
    size = _snappy_size(block)
    _check(size, max_bytes)
    if size > SNAPPY_RATIO_MAX * len(block):
        raise Malformed(f"snappy: {len(block)} bytes cannot expand to {size}")
    out = bytearray(size)
    if size and cramjam.snappy.decompress_raw_into(block, out) != size:
        raise Malformed("snappy: the block is shorter than its declared size")
    return bytes(out)


def _snappy_size(block: memoryview) -> int:
    size = 0
    for index in range(SNAPPY_LENGTH_BYTES_MAX):
        byte = block[index]
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size
    raise Malformed("snappy: the declared size has more than five bytes")


def _lz4_compress(data: memoryview, level: int) -> bytes:
    pieces: list[Buffer] = [LZ4_HEADER]
    for start in range(0, len(data), LZ4_BLOCK_BYTES):
        raw = data[start : start + LZ4_BLOCK_BYTES]
        block = _lz4_fast(raw) if level == LZ4_LEVEL else _lz4_high(raw, level)
        if len(block) < len(raw):
            pieces += (_U32_LITTLE.pack(len(block)), block)
        else:
            pieces += (_U32_LITTLE.pack(len(raw) | LZ4_STORED), raw)
    pieces.append(LZ4_END_MARK)
    return b"".join(pieces)


def _lz4_fast(raw: memoryview) -> bytes:
    return bytes(cramjam.lz4.compress_block(raw, store_size=False))


def _lz4_high(raw: memoryview, level: int) -> Buffer:
    """Compress one block with the high compressor.

    The library supports levels only for whole frames. So compress a frame with one block, and return that block.
    """
    frame = memoryview(bytes(cramjam.lz4.compress(raw, level)))
    (size,) = _U32_LITTLE.unpack_from(frame, LZ4_FRAME_HEADER_BYTES)
    if size & LZ4_STORED:
        return raw
    start = LZ4_FRAME_HEADER_BYTES + _U32_LITTLE.size
    return frame[start : start + size]


def _lz4(data: memoryview, max_bytes: int) -> bytes:
    bound = position = blocks = 0
    while position < len(data):
        position, size, count = _skippable(data, position) or _lz4_frame(data, position, max_bytes)
        bound += size
        blocks += count
        _check_blocks(blocks, max_bytes)
    return _into(cramjam.lz4.decompress_into, data, bound, max_bytes)


def _lz4_frame(data: memoryview, position: int, max_bytes: int) -> tuple[int, int, int]:
    """Return (end of the frame, maximum output bytes of the frame, number of blocks)."""
    if bytes(data[position : position + 4]) != LZ4_MAGIC:
        raise Malformed(f"lz4: no frame at byte {position}")
    flags, descriptor = data[position + 4], data[position + 5]
    block_max = LZ4_BLOCK_BYTES_BY_ID.get(descriptor >> 4 & 7)
    if block_max is None:
        raise Malformed(f"lz4: block size id {descriptor >> 4 & 7} is not defined")
    position += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)  # content size, dictionary id
    checksum = 4 if flags & 0x10 else 0
    bound = blocks = 0
    while True:
        (word,) = _U32_LITTLE.unpack_from(data, position)
        position += 4
        if word == 0:
            return position + (4 if flags & 0x04 else 0), bound, blocks + 1
        blocks += 1
        _check_blocks(blocks, max_bytes)
        size = word & ~LZ4_STORED
        if size > min(block_max, len(data) - position):
            raise Malformed(f"lz4: block of {size} bytes at byte {position} is too large")
        bound += size if word & LZ4_STORED else min(block_max, size * LZ4_RATIO_MAX)
        position += size + checksum


def _zstd(data: memoryview, max_bytes: int) -> bytes:
    bound = position = blocks = 0
    while position < len(data):
        position, size, count = _skippable(data, position) or _zstd_frame(data, position, max_bytes)
        bound += size
        blocks += count
        _check_blocks(blocks, max_bytes)
    return _into(cramjam.zstd.decompress_into, data, bound, max_bytes)


def _zstd_frame(data: memoryview, position: int, max_bytes: int) -> tuple[int, int, int]:
    """Return (end of the frame, maximum output bytes, number of blocks). See RFC 8878, section 3.1.1."""
    if bytes(data[position : position + 4]) != ZSTD_MAGIC:
        raise Malformed(f"zstd: no frame at byte {position}")
    descriptor = data[position + 4]
    position += 5
    single_segment = descriptor & 0x20
    window = 0
    if not single_segment:
        exponent, mantissa = data[position] >> 3, data[position] & 7
        window = (1 << 10 + exponent) // 8 * (8 + mantissa)
        position += 1
    position += (0, 1, 2, 4)[descriptor & 3]  # dictionary id
    width = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    content = int.from_bytes(data[position : position + width], "little") + (256 if width == 2 else 0)
    position += width
    if width:
        _check(content, max_bytes)
    if window > ZSTD_WINDOW_BYTES_MAX:
        raise Malformed(f"zstd: window of {window} bytes exceeds {ZSTD_WINDOW_BYTES_MAX}")
    bound = blocks = 0
    while True:
        blocks += 1
        _check_blocks(blocks, max_bytes)
        header = int.from_bytes(data[position : position + 3], "little")
        kind, size = header >> 1 & 3, header >> 3
        stored = 1 if kind == 1 else size
        position += 3 + stored
        if position > len(data):
            raise Malformed("zstd: a block exceeds the data")
        bound += min(size, ZSTD_BLOCK_BYTES_MAX) if kind != 2 else ZSTD_BLOCK_BYTES_MAX
        if header & 1:
            return position + (4 if descriptor & 0x04 else 0), content if width else bound, blocks


def _skippable(data: memoryview, position: int) -> tuple[int, int, int] | None:
    if data[position] & 0xF0 != 0x50 or bytes(data[position + 1 : position + 4]) != SKIPPABLE_MAGIC:
        return None
    (size,) = _U32_LITTLE.unpack_from(data, position + 4)
    return position + 8 + size, 0, 1


def _into(run: Callable[[memoryview, bytearray], int], data: memoryview, bound: int, max_bytes: int) -> bytes:
    """Decompress into a buffer of `bound` or `max_bytes` bytes, whichever is less.

    The library fails if it is too small. If `bound` permits more bytes than the buffer has, that is the likely cause.
    """
    if not data:
        raise Malformed("the compressed data is empty")
    out = bytearray(max(1, min(bound, max_bytes)))
    try:
        size = run(data, out)
    except cramjam.DecompressionError as error:
        if bound > max_bytes:
            raise ExpansionExceeded(f"the decompressed data exceeds the limit of {max_bytes} bytes: {error}") from error
        raise
    _check(size, max_bytes)
    return bytes(memoryview(out)[:size])


_DECOMPRESSORS: Final[dict[Compression, Callable[[memoryview, int], bytes]]] = {
    Compression.NONE: _stored,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
