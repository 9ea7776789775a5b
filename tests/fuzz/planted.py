"""Targets with planted defects. Tests require that the fuzzer finds each of them."""

from __future__ import annotations

from odradek.protocol.errors import Malformed
from odradek.protocol.primitives import read_unsigned_varint
from tests.fuzz.target import KIB, Bound, Target

MAGIC = b"\x4f\x64\x72"
REPEAT = 2
END = 7


def behind_a_magic(data: bytes) -> int:
    """Read past the end of the input, if a magic of three bytes comes before. Random inputs do not contain it."""
    for index, byte in enumerate(MAGIC):
        if index >= len(data) or data[index] != byte:
            raise Malformed("wrong magic")
    data[len(data)]
    return 0


def allocates(data: bytes) -> int:
    """Allocate what a length in the input declares."""
    length, _ = read_unsigned_varint(data, 0)
    bytearray(min(length, 1_000_000))
    return 0


def hangs(data: bytes) -> int:
    """Read the same byte without end, if it has one of the values."""
    at = 0
    while at < len(data) and data[at] != END:
        at += 0 if data[at] == REPEAT else 1
    return 0


TARGETS = {
    target.name: target
    for target in (
        Target("behind-a-magic", behind_a_magic, lambda: [b"\x4f", bytes(8)], typed=(Malformed,), bytes_max=32),
        Target("allocates", allocates, lambda: [b"\x05"], typed=(Malformed,), memory=Bound(64 * KIB, 64), bytes_max=32),
        Target("hangs", hangs, lambda: [bytes(4)], bytes_max=32),
    )
}
