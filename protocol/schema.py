"""Base classes of generated messages, and the parser of their field tables.

A generated class has a string SCHEMA, with one line per field, in wire order:

    name type versions [n<versions>] [t<tag>@<versions>] [f<versions>] [i]

- n: versions in which the field is nullable
- t: tagged field (KIP-482), its tag and versions
- f: versions in which the field is flexible, if they differ from the versions of the message
- i: ignorable. The encoder drops the field in versions without it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

Buffer = bytes | bytearray | memoryview
Range = tuple[int, int]
NEW: Final[Any] = object()
"""Default of a parameter of a generated class: each instance creates an empty list or struct of its own."""

NO_VERSIONS: Final[Range] = (0, -1)
VERSION_MAX: Final = 32_767

# Struct format characters of the types with a fixed size. A uuid is 16 raw bytes.
FIXED_FORMATS: Final[dict[str, str]] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "uuid": "16s",
}
FIXED_SIZES: Final[dict[str, int]] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint16": 2,
    "uint32": 4,
    "float64": 8,
    "uuid": 16,
}


class Struct:
    """Base of all generated classes. It defines equality and representation as a dataclass does."""

    __slots__ = ()
    SCHEMA: ClassVar[str]
    __hash__ = None  # type: ignore[assignment]  # mutable

    def __eq__(self, other: object) -> bool:
        return field_values(self) == field_values(other) if isinstance(other, self.__class__) else NotImplemented

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in field_values(self))
        return f"{self.__class__.__qualname__}({shown})"


S = TypeVar("S", bound=Struct)


def replace_fields(struct: S, **changes: Any) -> S:
    """Return a copy of `struct` with some fields changed, as `dataclasses.replace` does for a dataclass."""
    return struct.__class__(**{**dict(field_values(struct)), **changes})


def field_values(struct: Struct) -> list[tuple[str, Any]]:
    """Return (name, value) of each field."""
    names: tuple[str, ...] = vars(struct.__class__)["__slots__"]
    return [(name, getattr(struct, name)) for name in names]


@dataclass(frozen=True, slots=True)
class Packed:
    """Encoded elements of an array of structs. Sliced encoders write `data` in place of the elements."""

    count: int
    data: bytes


class Message(Struct):
    """Base of the generated requests, responses, headers and log records.

    - MIN_VERSION and MAX_VERSION: the schema's validVersions. If there are none, MAX_VERSION is less than MIN_VERSION.
    - API_KEY: the API key of a request or response, the type of a log record, or -1.
    - FLEXIBLE_MIN: the first version with compact encodings and tagged fields, or None.
    """

    __slots__ = ()
    NAME: ClassVar[str]
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_MIN: ClassVar[int | None]


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One parsed line of SCHEMA.

    `kind` is the type, for an array that of its elements. `struct` is the class of a struct type.
    """

    name: str
    kind: str
    is_array: bool
    versions: Range
    nullable: Range
    tagged: Range
    tag: int
    flexible: Range | None
    ignorable: bool
    struct: type[Struct] | None
    default: object
    default_is_struct: bool

    def in_version(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def tagged_in(self, version: int) -> bool:
        return self.tagged[0] <= version <= self.tagged[1]

    def nullable_in(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]

    def ever_nullable(self) -> bool:
        return self.nullable[0] <= self.nullable[1]

    def flexible_in(self, version: int, message_is_flexible: bool) -> bool:
        if self.flexible is None:
            return message_is_flexible
        return self.flexible[0] <= version <= self.flexible[1]


def parse_range(text: str) -> Range:
    """Parse a version range: '3+' is (3, 32767), '1-4' is (1, 4), '2' is (2, 2), 'none' is NO_VERSIONS."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return int(text[:-1]), VERSION_MAX
    low, _, high = text.partition("-")
    return int(low), int(high or low)


_rows: dict[type[Struct], tuple[FieldRow, ...]] = {}


def field_rows(cls: type[Struct]) -> tuple[FieldRow, ...]:
    """Return the fields of a generated class, in wire order. Parse SCHEMA on the first call."""
    rows = _rows.get(cls)
    if rows is None:
        namespace = vars(sys.modules[cls.__module__])
        defaults = cls()
        rows = _rows[cls] = tuple(_parse_row(line, defaults, namespace) for line in cls.SCHEMA.splitlines())
    return rows


def _parse_row(line: str, defaults: Struct, namespace: dict[str, Any]) -> FieldRow:
    name, kind, versions, *options = line.split()
    nullable, tagged, tag, flexible, ignorable = NO_VERSIONS, NO_VERSIONS, -1, None, False
    for option in options:
        if option == "i":
            ignorable = True
        elif option[0] == "n":
            nullable = parse_range(option[1:])
        elif option[0] == "f":
            flexible = parse_range(option[1:])
        else:
            number, _, where = option[1:].partition("@")
            tag, tagged = int(number), parse_range(where)
    is_array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    struct = namespace[kind] if kind[0].isupper() else None
    default = getattr(defaults, name)
    default_is_struct = isinstance(default, Struct)
    if default_is_struct:
        default = None
    return FieldRow(
        name, kind, is_array, parse_range(versions), nullable, tagged, tag, flexible, ignorable, struct, default,
        default_is_struct,
    )  # fmt: skip
