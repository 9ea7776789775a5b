"""The four codecs of record batches, each with a bound on what it may expand to.

The size of the output is known or bounded by the frame's own structure before anything is allocated: zstd and lz4 frames
are walked block by block, snappy blocks state their size, gzip is inflated step by step. Nothing is ever allocated beyond
`max_bytes`.
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
GZIP_LEVEL: Final = -1  # 6, as zlib has it
LZ4_LEVEL: Final = 9  # Kafka's name for the fast compressor; every other one is a level of the high compressor
ZSTD_LEVEL: Final = 3

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable from version 1 on
XERIAL_BLOCK_BYTES: Final = 32_768
SNAPPY_RATIO_MAX: Final = 64  # a copy element yields at most 64 bytes and takes at least two
SNAPPY_LENGTH_BYTES_MAX: Final = 5

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
# Java's reader takes frames with independent blocks only: version 1, independent, no checksums, 64 KiB blocks, and the
# second byte of xxh32 over those two bytes
LZ4_HEADER: Final = LZ4_MAGIC + b"\x60\x40\x82"
LZ4_BLOCK_BYTES: Final = 65_536
LZ4_BLOCK_BYTES_BY_ID: Final = {4: 65_536, 5: 262_144, 6: 1_048_576, 7: 4_194_304}
LZ4_RATIO_MAX: Final = 255
LZ4_FRAME_HEADER_BYTES: Final = 7
LZ4_STORED: Final = 0x8000_0000
LZ4_END_MARK: Final = b"\x00\x00\x00\x00"

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
ZSTD_BLOCK_BYTES_MAX: Final = 131_072
ZSTD_WINDOW_BYTES_MAX: Final = 134_217_728  # 2**27: what the highest level uses, and where Kafka's own reader stops
SKIPPABLE_MAGIC: Final = b"\x2a\x4d\x18"  # behind a first byte of 0x50 to 0x5f, in lz4 and zstd alike

_U32_BIG: Final = Packer(">I")
_U32_LITTLE: Final = Packer("<I")


class Compression(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """In the framing of Kafka's own producers: xerial for snappy, frames with independent blocks for lz4.

    `level`: as Kafka's `compression.gzip.level` and its like; None is its default.
    """
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.GZIP:
        return zlib.compress(data, GZIP_LEVEL if level is None else level, GZIP_WINDOW_BITS)
    if codec is Compression.SNAPPY:
        return _xerial_compress(memoryview(data))
    if codec is Compression.LZ4:
        return _lz4_compress(memoryview(data), LZ4_LEVEL if level is None else level)
    return bytes(cramjam.zstd.compress(data, ZSTD_LEVEL if level is None else level))


def decompress(codec: Compression, data: Buffer, *, max_bytes: int) -> bytes:
    """Raises Malformed on garbage, and where the output would be larger than `max_bytes`."""
    view = memoryview(data)
    try:
        return _DECOMPRESSORS[codec](view, max_bytes)
    except (cramjam.DecompressionError, zlib.error, struct.error, IndexError) as error:
        raise Malformed(f"{codec.name.lower()}: {error}") from error


def _check(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise Malformed(f"decompressed size {size} is over the bound of {max_bytes} bytes")


def _stored(data: memoryview, max_bytes: int) -> bytes:
    _check(len(data), max_bytes)
    return bytes(data)


def _gzip(data: memoryview, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    room = max_bytes
    while True:  # concatenated members are one stream; each has a header of at least ten bytes, so this ends
        inflater = zlib.decompressobj(GZIP_WINDOW_BITS)
        piece = inflater.decompress(data, room + 1)
        room -= len(piece)
        _check(max_bytes - room, max_bytes)
        pieces.append(piece)
        if not inflater.eof:
            raise Malformed("gzip: the stream ends early")
        if not inflater.unused_data:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        data = data[len(data) - len(inflater.unused_data) :]


def _xerial_compress(data: memoryview) -> bytes:
    pieces: list[bytes] = [XERIAL_HEADER]
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_BYTES]))
        pieces += (_U32_BIG.pack(len(block)), block)
    return b"".join(pieces)


def _snappy(data: memoryview, max_bytes: int) -> bytes:
    """Framed as by snappy-java, or one plain block."""
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _snappy_block(data, max_bytes)
    pieces: list[bytes] = []
    position, room = len(XERIAL_HEADER), max_bytes
    if len(data) < position:
        raise Malformed("snappy: the stream ends in its header")
    while position < len(data):
        (size,) = _U32_BIG.unpack_from(data, position)
        position += 4
        if size > len(data) - position:
            raise Malformed(f"snappy: block of {size} bytes at byte {position} runs past the end")
        piece = _snappy_block(data[position : position + size], room)
        room -= len(piece)
        position += size
        pieces.append(piece)
    return b"".join(pieces)


def _snappy_block(block: memoryview, max_bytes: int) -> bytes:
    size = _snappy_size(block)
    _check(size, max_bytes)
    if size > SNAPPY_RATIO_MAX * len(block):
        raise Malformed(f"snappy: {len(block)} bytes cannot hold {size}")
    out = bytearray(size)
    if size and cramjam.snappy.decompress_raw_into(block, out) != size:
        raise Malformed("snappy: the block is shorter than stated")
    return bytes(out)


def _snappy_size(block: memoryview) -> int:
    size = 0
    for index in range(SNAPPY_LENGTH_BYTES_MAX):
        byte = block[index]
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size
    raise Malformed("snappy: the stated size does not fit")


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
    """Levels are to be had for whole frames only: the one block of such a frame, which hangs on no other."""
    frame = memoryview(bytes(cramjam.lz4.compress(raw, level)))
    (size,) = _U32_LITTLE.unpack_from(frame, LZ4_FRAME_HEADER_BYTES)
    if size & LZ4_STORED:
        return raw
    start = LZ4_FRAME_HEADER_BYTES + _U32_LITTLE.size
    return frame[start : start + size]


def _lz4(data: memoryview, max_bytes: int) -> bytes:
    bound = position = 0
    while position < len(data):
        position, size = _skippable(data, position) or _lz4_frame(data, position)
        bound += size
    return _into(cramjam.lz4.decompress_into, data, bound, max_bytes)


def _lz4_frame(data: memoryview, position: int) -> tuple[int, int]:
    """(where the frame ends, the most bytes it can hold)."""
    if bytes(data[position : position + 4]) != LZ4_MAGIC:
        raise Malformed(f"lz4: no frame at byte {position}")
    flags, descriptor = data[position + 4], data[position + 5]
    block_max = LZ4_BLOCK_BYTES_BY_ID.get(descriptor >> 4 & 7)
    if block_max is None:
        raise Malformed(f"lz4: block size id {descriptor >> 4 & 7} is not defined")
    position += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)  # content size, dictionary id
    checksum = 4 if flags & 0x10 else 0
    bound = 0
    while True:
        (word,) = _U32_LITTLE.unpack_from(data, position)
        position += 4
        if word == 0:
            return position + (4 if flags & 0x04 else 0), bound
        size = word & ~LZ4_STORED
        if size > min(block_max, len(data) - position):
            raise Malformed(f"lz4: block of {size} bytes at byte {position} is too large")
        bound += size if word & LZ4_STORED else min(block_max, size * LZ4_RATIO_MAX)
        position += size + checksum


def _zstd(data: memoryview, max_bytes: int) -> bytes:
    bound = position = 0
    while position < len(data):
        position, size = _skippable(data, position) or _zstd_frame(data, position, max_bytes)
        bound += size
    return _into(cramjam.zstd.decompress_into, data, bound, max_bytes)


def _zstd_frame(data: memoryview, position: int, max_bytes: int) -> tuple[int, int]:
    """(where the frame ends, the most bytes it can hold). RFC 8878, section 3.1.1."""
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
        raise Malformed(f"zstd: window of {window} bytes is over {ZSTD_WINDOW_BYTES_MAX}")
    bound = 0
    while True:
        header = int.from_bytes(data[position : position + 3], "little")
        kind, size = header >> 1 & 3, header >> 3
        stored = 1 if kind == 1 else size
        position += 3 + stored
        if position > len(data):
            raise Malformed("zstd: a block runs past the end")
        bound += min(size, ZSTD_BLOCK_BYTES_MAX) if kind != 2 else ZSTD_BLOCK_BYTES_MAX
        if header & 1:
            return position + (4 if descriptor & 0x04 else 0), content if width else bound


def _skippable(data: memoryview, position: int) -> tuple[int, int] | None:
    if data[position] & 0xF0 != 0x50 or bytes(data[position + 1 : position + 4]) != SKIPPABLE_MAGIC:
        return None
    (size,) = _U32_LITTLE.unpack_from(data, position + 4)
    return position + 8 + size, 0


def _into(run: Callable[[memoryview, bytearray], int], data: memoryview, bound: int, max_bytes: int) -> bytes:
    """Decompresses into a buffer that holds all the data can, or `max_bytes`; the library fails when that is too small."""
    if not data:
        raise Malformed("no frame at all")
    out = bytearray(max(1, min(bound, max_bytes)))
    size = run(data, out)
    _check(size, max_bytes)
    return bytes(memoryview(out)[:size])


_DECOMPRESSORS: Final[dict[Compression, Callable[[memoryview, int], bytes]]] = {
    Compression.NONE: _stored,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
