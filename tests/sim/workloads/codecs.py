"""The four compression codecs of record batches.

They share no code with the broker: an error of its framing cannot cancel out.
"""

import gzip
import struct
from typing import Final

import cramjam

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODEC_NAMES: Final = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
XERIAL_HEADER: Final = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES: Final = 100
"""Small, so that batches have several blocks. The writer selects the size."""
ZSTD_LEVEL: Final = 3
GZIP_LEVEL: Final = 6


def compress(codec: int, data: bytes) -> bytes:
    """Compress the records of a batch, in the framing of stock clients."""
    if codec == GZIP:
        return gzip.compress(data, GZIP_LEVEL, mtime=0)
    if codec == SNAPPY:
        out = bytearray(XERIAL_HEADER)
        for start in range(0, len(data), XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_BYTES]))
            out += struct.pack(">i", len(block)) + block
        return bytes(out)
    if codec == LZ4:
        return bytes(cramjam.lz4.compress(data))
    return bytes(cramjam.zstd.compress(data, ZSTD_LEVEL))


def decompress(codec: int, data: bytes) -> bytes:
    """Return the records of a compressed batch. Raise ValueError or cramjam.DecompressionError if it is invalid."""
    if codec == GZIP:
        return gzip.decompress(data)
    if codec == SNAPPY:
        return _decompress_xerial(data)
    if codec == LZ4:
        return bytes(cramjam.lz4.decompress(data))
    return bytes(cramjam.zstd.decompress(data))


def _decompress_xerial(data: bytes) -> bytes:
    if not data.startswith(XERIAL_HEADER):
        raise ValueError("no snappy header")
    out, position = b"", len(XERIAL_HEADER)
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        out += bytes(cramjam.snappy.decompress_raw(data[position : position + size]))
        position += size
    return out
