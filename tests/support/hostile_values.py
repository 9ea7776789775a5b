"""Requests with values that no client sends, and requests with as many elements as possible, from the schemas."""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.batch import build_batch
from odradek.protocol.codec import encode
from odradek.protocol.errors import Unencodable
from odradek.protocol.generation.measuring import element_classes, instance
from odradek.protocol.primitives import unsigned_varint
from odradek.protocol.schema import Message, Struct, field_rows, field_values
from tests.support.raw_client import SIZE, encode_request

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from odradek.protocol.schema import FieldRow

NUMBERS: Final = (-(2**31), -2, -1, 0, 1, 2, 7, 100, 2**31 - 1)
TEXTS: Final = (
    "", "t", "missing", ".", "..", "../../etc/passwd", "a b", "é" * 200, "__transaction_state", "x" * 300, "y" * 20_000
)  # fmt: skip
ELEMENTS_MAX: Final = 1_000_000
"""Maximum elements of an array in a request: the limit of Kafka's decoder."""
ENCODING_ATTEMPTS_MAX: Final = 50
DEPTH_MAX: Final = 6
"""Maximum depth of nested structs with generated values."""


# ---- values that no client sends ------------------------------------------------------------------------------------


def invalid(kind: type[Struct], rng: random.Random, depth: int = 0) -> Any:
    """Generate a message with values that no client sends. Some fields keep their defaults."""
    message: Any = kind()
    for name, _ in field_values(message):
        hint = kind.__annotations__[name]
        if name == "unknown_tagged_fields" or rng.random() < 0.3:
            continue
        value = invalid_value(kind, hint, rng, depth)
        if value is not None:
            setattr(message, name, value)
    return message


def invalid_value(kind: type[Struct], hint: str, rng: random.Random, depth: int) -> Any:
    inner = hint.removesuffix(" | None")
    if inner.startswith("list["):
        item = inner[5:-1]
        values = [invalid_value(kind, item, rng, depth + 1) for _ in range(rng.choice((0, 1, 3)))]
        return [value for value in values if value is not None]
    if inner == "int":
        return rng.choice(NUMBERS)
    if inner == "str":
        return rng.choice(TEXTS)
    if inner == "bool":
        return rng.random() < 0.5
    if inner == "UUID":
        return uuid.UUID(int=rng.choice((0, 1, 2**127)))
    if "Buffer" in inner or "bytes" in inner:
        return rng.choice((b"", b"\x00" * 70, batch(), batch()[:-3], batch()[:40] + b"\xff" + batch()[41:]))
    nested = getattr(__import__(kind.__module__, fromlist=[inner]), inner, None)
    return invalid(nested, rng, depth + 1) if isinstance(nested, type) and depth < DEPTH_MAX else None


def batch() -> bytes:
    return build_batch([(b"k", b"v", 1_700_000_000_000, ())])


def encodable(kind: type[Message], version: int, rng: random.Random) -> bytes:
    """Generate a message that `version` can encode. Repeat while a field or a value does not fit that version."""
    for _ in range(ENCODING_ATTEMPTS_MAX):
        try:
            return encode(invalid(kind, rng), version)
        except (Unencodable, struct.error, ValueError, OverflowError, TypeError):
            continue
    return encode(kind(), version)


# ---- huge arrays ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HugeArray:
    """One huge request: the array of `path` has `count` elements."""

    path: str
    count: int
    frame: bytes


def array_paths(cls: type[Message], version: int) -> Iterator[tuple[FieldRow, ...]]:
    """Yield the path to each array of `cls` in this version, of structs or of plain values."""
    for path in ((), *element_classes(cls)):
        if path and not all(row.in_version(version) for row in path):
            continue
        owner = path[-1].struct if path else cls
        assert owner is not None
        if path:
            yield path
        for row in field_rows(owner):
            if row.is_array and row.struct is None and row.in_version(version):
                yield (*path, row)


def huge(
    cls: type[Message],
    version: int,
    path: tuple[FieldRow, ...],
    size: int,
    *,
    elements_max: int = ELEMENTS_MAX,
    client_id: str = "hostile",
) -> HugeArray:
    """Return a request whose last array of `path` has as many elements as fit in `size` bytes."""
    one, two = (encode_request(instance(cls, version, path, count), version, 1, client_id) for count in (1, 2))
    count = max(2, min(elements_max, size // max(1, len(two) - len(one))))
    frame = _repeated(one, two, count)
    three = encode_request(instance(cls, version, path, 3), version, 1, client_id)
    if frame is None or _repeated(one, two, 3) != three:
        frame = encode_request(instance(cls, version, path, count), version, 1, client_id)
    return HugeArray(".".join(row.name for row in path), count, frame)


def _repeated(one: bytes, two: bytes, count: int) -> bytes | None:
    """Return the frame with `count` equal elements from the frames with one and with two.

    The encoding of a million objects takes seconds. Return None if the length of the array cannot be found, for example
    because the array is a tagged field.
    """
    body_one, body_two = one[SIZE.size :], two[SIZE.size :]
    at = next(index for index, (first, second) in enumerate(zip(body_one, body_two, strict=False)) if first != second)
    lengths = {1: count.to_bytes(4, "big"), 2: unsigned_varint(count + 1)}
    length = lengths.get(body_one[at])
    if length is None:
        return None
    start = at - 3 if body_one[at] == 1 else at
    element = body_two[at + 1 : at + 1 + len(two) - len(one)]
    body = body_one[:start] + length + element * count + body_one[at + 1 + len(element) :]
    return SIZE.pack(len(body)) + body
