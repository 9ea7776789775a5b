"""Generate valid messages from their schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from odradek.protocol.schema import FieldRow, Struct, field_rows

if TYPE_CHECKING:
    from random import Random

S = TypeVar("S", bound=Struct)

ELEMENTS_MAX = 3
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
TEXTS = ("", "a", "topic-1", "group", "é" * 5, "__consumer_offsets", "x" * 130)


def random_struct(cls: type[S], version: int, rng: Random) -> S:
    """Return an instance with a random value in each field of the version."""
    return cls(**{row.name: _field(row, version, rng) for row in field_rows(cls) if row.in_version(version)})


def _field(row: FieldRow, version: int, rng: Random) -> Any:
    if row.nullable_in(version) and rng.random() < 0.2:
        return None
    if row.is_array:
        return [_value(row, version, rng) for _ in range(rng.randint(0, ELEMENTS_MAX))]
    return _value(row, version, rng)


def _value(row: FieldRow, version: int, rng: Random) -> Any:
    if row.struct is not None:
        return random_struct(row.struct, version, rng)
    if row.kind == "bool":
        return rng.random() < 0.5
    if row.kind in BITS:
        bits = BITS[row.kind]
        value = rng.choice((0, 1, 2, 5, (1 << bits - 1) - 1, rng.getrandbits(bits - 1)))
        return value if row.kind.startswith("uint") or rng.random() < 0.9 else -value - 1
    if row.kind == "float64":
        return rng.choice((0.0, 1.5, -2.0, 1e300))
    if row.kind == "uuid":
        return UUID(int=rng.choice((0, 1, rng.getrandbits(128))))
    if row.kind == "string":
        return rng.choice(TEXTS)
    return rng.randbytes(rng.choice((0, 1, 7, 20)))
