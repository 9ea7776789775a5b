"""Collect the source lines of a compiled encoder or decoder, and map each line to its field."""

from __future__ import annotations

from functools import cache
from struct import Struct as Packer
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.schema import FIXED_SIZES, FieldRow, Struct, field_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

STRING_BYTES_MAX: Final = 32_767
"""Maximum bytes of a string. Kafka has the same limit in the compact form."""
SOURCE_PREFIX: Final = "<protocol codec "


class Emitter:
    """Source of one function. `namespace` contains the objects that the source refers to by name."""

    def __init__(self, name: str, namespace: dict[str, Any]) -> None:
        self.name = name
        self.namespace = namespace
        self.lines: list[str] = []
        self.fields: list[str] = []  # field path of each line
        self.path: list[str] = []
        self.depth = 1
        self._counter = 0

    def emit(self, line: str, *, fields: str = "") -> None:
        """Append a line of source code. `fields` lists the schema fields that it handles (default: the current one)."""
        self.lines.append("    " * self.depth + line)
        self.fields.append(fields or self.where())

    def where(self) -> str:
        """Return the path of the current field."""
        return ".".join(self.path)

    def fresh(self, stem: str) -> str:
        """Return a new variable name that begins with `stem`."""
        self._counter += 1
        return f"{stem}{self._counter}"

    def constant(self, stem: str, value: object) -> str:
        """Return a name for `value` in the compiled source. Add it to the namespace if needed."""
        for name, known in self.namespace.items():
            if known is value:
                return name
        name = self.fresh(f"_{stem}")
        self.namespace[name] = value
        return name

    def compile(self, parameters: str) -> CompiledCodec:
        """Compile the collected lines to a function with these parameters."""
        source = f"def run({parameters}):\n" + "\n".join(self.lines) + "\n"
        code = compile(source, f"{SOURCE_PREFIX}{self.name}>", "exec")
        exec(code, self.namespace)  # noqa: S102  # the source comes from schemas only
        return CompiledCodec(self.name, self.namespace["run"], self.fields)


class CompiledCodec:
    """One compiled function, and the field of each of its lines.

    The function has no code for error messages, because it is a hot path. If it raises, the line number in the
    traceback gives the field, and the local variable `p` of the frame gives the position.
    """

    __slots__ = ("_fields", "name", "run")

    def __init__(self, name: str, run: Callable[..., Any], fields: list[str]) -> None:
        self.name = name
        self.run = run
        self._fields = fields

    def locate(self, traceback: TracebackType | None) -> tuple[str, int | None]:
        """Return (field path, position or None) at which the compiled function raised."""
        while traceback is not None:
            code = traceback.tb_frame.f_code
            if code.co_filename.startswith(SOURCE_PREFIX):
                index = traceback.tb_lineno - 2
                field = self._fields[index] if 0 <= index < len(self._fields) else ""
                return field or "message", traceback.tb_frame.f_locals.get("p")
            traceback = traceback.tb_next
        return "message", None


@cache
def packer(layout: str) -> Packer:
    return Packer(">" + layout)


def minimum_size(cls: type[Struct], version: int, *, flexible: bool) -> int:
    """Return the minimum bytes of an encoded struct of this version, at least one.

    The decoder compares the length of an array with this before it allocates the array. A minimum of zero bytes would
    allow any length, so an empty struct counts as one byte.
    """
    size = 1 if flexible else 0  # the number of tagged fields
    for row in field_rows(cls):
        if row.in_version(version) and not row.tagged_in(version):
            size += _minimum_field_size(row, version, flexible=flexible)
    return max(size, 1)


def element_size(row: FieldRow, version: int, *, flexible: bool) -> int:
    """Return the minimum bytes of one element of this array."""
    if row.struct is not None:
        return minimum_size(row.struct, version, flexible=flexible)
    if row.kind in FIXED_SIZES:
        return FIXED_SIZES[row.kind]
    return 1 if flexible else 2 if row.kind == "string" else 4


def _minimum_field_size(row: FieldRow, version: int, *, flexible: bool) -> int:
    flexible = row.flexible_in(version, flexible)
    if row.is_array:
        return 1 if flexible else 4
    if row.struct is not None:
        return 1 if row.nullable_in(version) else minimum_size(row.struct, version, flexible=flexible)
    return element_size(row, version, flexible=flexible)
