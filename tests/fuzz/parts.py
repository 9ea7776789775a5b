"""Inputs that consist of several parts, such as records or files. A part is a size of two bytes, and its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.mutations import damaged

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

SIZE_BYTES = 2
PART_BYTES_MAX = 65_535


def joined(parts: Sequence[bytes]) -> bytes:
    """Return the input with these parts."""
    short = [part[:PART_BYTES_MAX] for part in parts]
    return b"".join(len(part).to_bytes(SIZE_BYTES, "big") + part for part in short)


def split(data: bytes) -> list[bytes]:
    """Return the parts of an input. The last part may be incomplete."""
    parts, at = [], 0
    while len(data) - at >= SIZE_BYTES:
        size = int.from_bytes(data[at : at + SIZE_BYTES], "big")
        parts.append(data[at + SIZE_BYTES : at + SIZE_BYTES + size])
        at += SIZE_BYTES + size
    return parts


def mutate(data: bytes, rng: Random) -> bytes:
    """Damage one part, or remove, repeat or move parts."""
    parts = split(data)
    if not parts:
        return damaged(data, rng)
    at = rng.randrange(len(parts))
    kind = rng.randrange(8)
    if kind == 0:
        del parts[at]
    elif kind == 1:
        parts.insert(rng.randint(0, len(parts)), parts[at])
    elif kind == 2:
        parts.insert(rng.randrange(len(parts)), parts.pop(at))
    else:
        parts[at] = damaged(parts[at], rng)
    return joined(parts)
