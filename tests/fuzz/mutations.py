"""Damage valid bytes: bit flips, lengths, counts, varints, moved and repeated parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.primitives import unsigned_varint

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

EDITS_MAX = 4
"""Maximum edits of one input. More edits rarely leave a valid part."""
PART_BYTES_MAX = 64
"""Maximum bytes that one edit inserts, removes, moves or repeats."""
BYTES = (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF)
NUMBERS = (-(2**63), -(2**31), -(2**15), -2, -1, 0, 1, 2, 127, 128, 255, 256, 10_000, 32_767, 32_768, 65_536,
           1_000_000, 1_000_001, 2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1)  # fmt: skip
SIZES = (1, 2, 4, 8)


def damaged(data: bytes, rng: Random) -> bytes:
    """Return `data` after one to EDITS_MAX random edits."""
    out = bytearray(data)
    for _ in range(rng.randint(1, EDITS_MAX)):
        rng.choice(EDITS)(out, rng)
    return bytes(out)


def spliced(first: bytes, second: bytes, rng: Random) -> bytes:
    """Return the start of one input and the end of another."""
    return first[: rng.randint(0, len(first))] + second[rng.randint(0, len(second)) :]


def _flip_bit(out: bytearray, rng: Random) -> None:
    if out:
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)


def _set_byte(out: bytearray, rng: Random) -> None:
    if out:
        out[rng.randrange(len(out))] = rng.choice(BYTES)


def _set_number(out: bytearray, rng: Random) -> None:
    """Overwrite a number of fixed size, such as a length or an array count."""
    size = rng.choice(SIZES)
    if len(out) >= size:
        at = rng.randint(0, len(out) - size)
        out[at : at + size] = (rng.choice(NUMBERS) % (1 << 8 * size)).to_bytes(size, "big")


def _add_to_number(out: bytearray, rng: Random) -> None:
    """Change a number of fixed size by a small amount."""
    size = rng.choice(SIZES)
    if len(out) >= size:
        at = rng.randint(0, len(out) - size)
        value = int.from_bytes(out[at : at + size], "big") + rng.randint(-16, 16)
        out[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "big")


def _set_varint(out: bytearray, rng: Random) -> None:
    """Replace a byte, which may be a varint, by a varint of one to ten bytes."""
    at = rng.randint(0, len(out))
    out[at : at + 1] = unsigned_varint(rng.choice(NUMBERS) % (1 << 64))


def _insert(out: bytearray, rng: Random) -> None:
    at = rng.randint(0, len(out))
    out[at:at] = rng.randbytes(rng.randint(1, 8))


def _remove(out: bytearray, rng: Random) -> None:
    at = rng.randint(0, len(out))
    del out[at : at + rng.randint(1, PART_BYTES_MAX)]


def _truncate(out: bytearray, rng: Random) -> None:
    del out[rng.randint(0, len(out)) :]


def _repeat(out: bytearray, rng: Random) -> None:
    at = rng.randint(0, len(out))
    out[at:at] = out[at : at + rng.randint(1, PART_BYTES_MAX)] * rng.randint(1, 8)


def _move(out: bytearray, rng: Random) -> None:
    at = rng.randint(0, len(out))
    part = out[at : at + rng.randint(1, PART_BYTES_MAX)]
    del out[at : at + len(part)]
    to = rng.randint(0, len(out))
    out[to:to] = part


EDITS: tuple[Callable[[bytearray, Random], None], ...] = (
    _flip_bit, _set_byte, _set_number, _set_number, _add_to_number, _set_varint, _set_varint, _insert, _remove,
    _truncate, _repeat, _move,
)  # fmt: skip
