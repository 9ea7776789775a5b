"""Compile the decoder of one (message, version) from generated Python source.

A run of fixed-size fields, with the first byte of a following length, becomes one Struct.unpack_from. Lengths are
compared with the remaining bytes before anything is allocated. Nested structs are inlined.

The decoder charges the memory of elements before it creates them (`odradek.protocol.compilation.charges`), and stops if
the charge exceeds its limit. Each message has two decoders: one that runs in one piece, and one that runs in slices.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.compilation.charges import BLOB_BYTES, BLOB_FACTOR, TAG_BYTES, element_bytes
from odradek.protocol.compilation.emitting import STRING_BYTES_MAX, CompiledCodec, Emitter, element_size, packer
from odradek.protocol.errors import ChargeExceeded, Malformed
from odradek.protocol.primitives import ZERO_UUID, read_unsigned_varint, uuid_of
from odradek.protocol.schema import FIXED_FORMATS, FIXED_SIZES, FieldRow, Message, Struct, field_rows

if TYPE_CHECKING:
    from uuid import UUID

TAG_BYTES_MIN: Final = 2  # a tagged field has at least a tag and a size, of one byte each
ARRAY_ELEMENTS_MAX: Final = 1_000_000
"""Maximum elements of an array, as in Kafka 4.4: an element can have one byte on the wire, and many in memory."""
TAGGED_FIELDS_MAX: Final = 10_000
"""Maximum tagged fields of a struct, as in Kafka 4.4."""


ELEMENTS_PER_SLICE: Final = 2_000
"""Maximum elements that a slice of a decoder creates. They take about 2 ms: 1 µs for a struct of four fields."""
BYTES_PER_ELEMENT: Final = 1_024
"""Bytes of strings in arrays that count as one element of a slice: they take about 1 µs."""
FIXED_ELEMENTS_PER_SLICE: Final = 50_000
"""As ELEMENTS_PER_SLICE, for elements of a fixed size, which one unpack creates: about 30 ns each."""


def compile_decoder(cls: type[Message], version: int, *, sliced: bool = False) -> CompiledCodec:
    """Compile the decoder of a message version.

    Its function is run(b, p, e, c) -> (message, next position, rest of the charge): the bytes, the start, the end, and
    the maximum charge in bytes. It raises ChargeExceeded, or if the bytes cannot be decoded, Malformed, struct.error,
    IndexError or ValueError. With `sliced`, the function is a generator that yields the rest of the charge after each
    slice, and returns the same result.
    """
    return _Decoder(cls, version, sliced=sliced).compile()


def _null(what: str) -> Malformed:
    return Malformed(f"null or negative length where {what} is required")


def _short(needed: int) -> Malformed:
    return Malformed(f"length {needed} exceeds the remaining bytes or the limit of its type")


def _uuids(data: bytes | memoryview, position: int, count: int) -> list[UUID]:
    return [uuid_of(bytes(data[i : i + 16])) for i in range(position, position + 16 * count, 16)]


def _numbers(layout: str, count: int, data: bytes | memoryview, position: int) -> list[int]:
    return list(struct.unpack_from(f">{count}{layout}", data, position))


def _has_records(cls: type[Struct]) -> bool:
    return any(
        row.kind == "records" or (row.struct is not None and _has_records(row.struct)) for row in field_rows(cls)
    )


class _Decoder:
    def __init__(self, cls: type[Message], version: int, *, sliced: bool) -> None:
        self.cls = cls
        self.version = version
        self.sliced = sliced
        self.array_depth = 0  # number of arrays around the current field
        self.flexible = cls.FLEXIBLE_MIN is not None and version >= cls.FLEXIBLE_MIN
        namespace: dict[str, Any] = {
            "uv": read_unsigned_varint,
            "uuid": uuid_of,
            "uuids": _uuids,
            "numbers": _numbers,
            "null": _null,
            "short": _short,
            "exceeded": ChargeExceeded,
            "Malformed": Malformed,
            "memoryview": memoryview,
            "ZERO_UUID": ZERO_UUID,
        }
        self.out = Emitter(f"{cls.NAME} v{version}", namespace)
        self.layout = ""  # struct format of the pending run of fixed-size fields
        self.targets: list[str] = []  # variables that the pending run assigns
        self.run_fields: dict[str, None] = {}  # field paths of the pending run, for error messages
        self.after: list[str] = []  # conversions after the pending run

    def compile(self) -> CompiledCodec:
        # All records fields share one view. With a view per field, a hostile client could allocate much memory with few
        # bytes.
        if _has_records(self.cls):
            self.out.emit("view = memoryview(b)")
        if self.sliced:
            self.out.emit(f"k = {ELEMENTS_PER_SLICE}")
        result = self._struct(self.cls, flexible=self.flexible)
        if self.sliced:
            self.out.emit("if False: yield c")  # a generator, although the message may have no arrays
        self.out.emit(f"return {result}, p, c")
        return self.out.compile("b, p, e, c")

    # ---- charges and slices -----------------------------------------------------------------------------------------

    def _charge(self, bytes_expression: str) -> None:
        self.out.emit(f"c -= {bytes_expression}")
        self.out.emit("if c < 0: raise exceeded()")

    def _end_slice(self) -> None:
        """Emit the end of a slice, at the start of the code of each element."""
        if self.sliced:
            self.out.emit("k -= 1")
            self.out.emit("if k < 0:")
            self.out.emit("    yield c")
            self.out.emit(f"    k = {ELEMENTS_PER_SLICE}")

    # ---- fixed runs -------------------------------------------------------------------------------------------------

    def _fixed(self, layout: str, target: str, after: str | None = None) -> None:
        if not self.targets:
            self.run_fields = {}
        self.run_fields[self.out.where()] = None
        self.layout += layout
        self.targets.append(target)
        if after is not None:
            self.after.append(after)

    def _flush(self) -> None:
        if not self.targets:
            return
        if self.layout == "B":
            self.out.emit(f"{self.targets[0]} = b[p]", fields=", ".join(self.run_fields))
            self.out.emit("p += 1")
        else:
            run = packer(self.layout)
            unpack = self.out.constant("u", run.unpack_from)
            comma = "," if len(self.targets) == 1 else ""
            self.out.emit(f"{', '.join(self.targets)}{comma} = {unpack}(b, p)", fields=", ".join(self.run_fields))
            self.out.emit(f"p += {run.size}")
        for line in self.after:
            self.out.emit(line)
        self.layout, self.targets, self.after = "", [], []

    def _unsigned_varint(self, target: str) -> None:
        self._fixed("B", target)
        self._flush()
        self.out.emit(f"if {target} > 127: {target}, p = uv(b, p - 1)")

    # ---- structs ----------------------------------------------------------------------------------------------------

    def _struct(self, cls: type[Struct], *, flexible: bool) -> str:
        """Emit the code that decodes one struct. Return the expression that creates it."""
        values: list[str] = []
        tagged: list[tuple[FieldRow, str]] = []
        for row in field_rows(cls):
            self.out.path.append(row.name)
            if not row.in_version(self.version):
                values.append(self._default(row))
            elif row.tagged_in(self.version):
                name = self.out.fresh("v")
                tagged.append((row, name))
                values.append(name)
            else:
                values.append(self._field(row, flexible=row.flexible_in(self.version, flexible)))
            self.out.path.pop()
        values.append(self._tags(tagged) if flexible else "()")
        self._flush()
        return f"{self.out.constant('c', cls)}({', '.join(values)})"

    def _default(self, row: FieldRow) -> str:
        if row.is_array and row.default is not None:
            return "[]"
        if row.struct is not None and row.default_is_struct:
            return f"{self.out.constant('c', row.struct)}()"
        return "ZERO_UUID" if row.default == ZERO_UUID else repr(row.default)

    def _field(self, row: FieldRow, *, flexible: bool, tagged: bool = False) -> str:
        target = self.out.fresh("v")
        nullable = row.nullable_in(self.version)
        if row.is_array:
            self._array(row, target, nullable=nullable, flexible=flexible)
        elif row.struct is not None:
            if not nullable:
                return self._struct(row.struct, flexible=flexible)
            self._nullable_struct(row.struct, target, flexible=flexible, tagged=tagged)
        elif row.kind == "uuid":
            self._fixed("16s", target, f"{target} = uuid({target})")
        elif row.kind in FIXED_FORMATS:
            self._fixed(FIXED_FORMATS[row.kind], target)
        else:
            self._blob(row.kind, target, nullable=nullable, flexible=flexible)
        return target

    def _nullable_struct(self, cls: type[Struct], target: str, *, flexible: bool, tagged: bool) -> None:
        # KIP-893: one byte, -1 for null. In a tagged field it is an unsigned varint, 0 for null.
        marker = self.out.fresh("n")
        if tagged:
            self._unsigned_varint(marker)
            self.out.emit(f"if {marker} == 0:")
        else:
            self._fixed("b", marker)
            self._flush()
            self.out.emit(f"if {marker} < 0:")
        self.out.emit(f"    {target} = None")
        self.out.emit("else:")
        self.out.depth += 1
        self.out.emit(f"{target} = {self._struct(cls, flexible=flexible)}")
        self.out.depth -= 1

    # ---- variable length --------------------------------------------------------------------------------------------

    def _blob(self, kind: str, target: str, *, nullable: bool, flexible: bool) -> None:
        """Emit the code for a string, bytes or records field. In compact form, the length is the size plus one."""
        length, out = self.out.fresh("n"), self.out
        if flexible:
            self._unsigned_varint(length)
        else:
            self._fixed("h" if kind == "string" else "i", length)
            self._flush()
        out.emit(f"if {length} {'== 0' if flexible else '< 0'}:")
        if nullable and not flexible:
            out.emit(f"    if {length} != -1: raise null({kind!r})")
        out.emit(f"    {target} = None" if nullable else f"    raise null({kind!r})")
        out.emit("else:")
        out.depth += 1
        out.emit(f"q = p + {length}" + (" - 1" if flexible else ""))
        limit = f" or {length} > {STRING_BYTES_MAX + 1}" if kind == "string" and flexible else ""
        out.emit(f"if q > e{limit}: raise short({length})")
        if self.array_depth and kind != "records":  # outside of arrays, the frame size limits strings and bytes
            self._charge(f"{BLOB_BYTES} + {BLOB_FACTOR[kind]} * {length}")
            if self.sliced:
                out.emit(f"k -= {length} // {BYTES_PER_ELEMENT}")
        expression = {"string": "str(b[p:q], 'utf-8')", "bytes": "bytes(b[p:q])", "records": "view[p:q]"}
        out.emit(f"{target} = {expression[kind]}")
        out.emit("p = q")
        out.depth -= 1

    def _array(self, row: FieldRow, target: str, *, nullable: bool, flexible: bool) -> None:
        length, out = self.out.fresh("n"), self.out
        if flexible:
            self._unsigned_varint(length)
            out.emit(f"{length} -= 1")
        else:
            self._fixed("i", length)
            self._flush()
        out.emit(f"if {length} < 0:")
        if nullable and not flexible:
            out.emit(f"    if {length} != -1: raise null('array')")
        out.emit(f"    {target} = None" if nullable else "    raise null('array')")
        out.emit("else:")
        out.depth += 1
        size = element_size(row, self.version, flexible=flexible)
        out.emit(f"if {length} * {size} > e - p or {length} > {ARRAY_ELEMENTS_MAX}: raise short({length})")
        self._charge(f"{length} * {element_bytes(row)}")
        if row.struct is None and row.kind in FIXED_FORMATS:
            self._fixed_elements(row.kind, target, length)
        else:
            self.array_depth += 1
            self._elements(row, target, length, flexible=flexible)
            self.array_depth -= 1
        out.depth -= 1

    def _fixed_elements(self, kind: str, target: str, length: str) -> None:
        out = self.out
        create = f"uuids(b, p, {length})" if kind == "uuid" else f"numbers({FIXED_FORMATS[kind]!r}, {length}, b, p)"
        if not self.sliced:
            out.emit(f"{target} = {create}")
            out.emit(f"p += {length} * {FIXED_SIZES[kind]}")
            return
        rest = out.fresh("r")
        out.emit(f"{target} = []")
        out.emit(f"{rest} = {length}")
        out.emit(f"while {rest}:")
        out.depth += 1
        out.emit(f"{length} = min({rest}, {FIXED_ELEMENTS_PER_SLICE})")
        out.emit(f"{rest} -= {length}")
        out.emit(f"{target} += {create}")
        out.emit(f"p += {length} * {FIXED_SIZES[kind]}")
        out.emit(f"k -= 1 + {length} * {ELEMENTS_PER_SLICE} // {FIXED_ELEMENTS_PER_SLICE}")
        out.emit("if k < 0:")
        out.emit("    yield c")
        out.emit(f"    k = {ELEMENTS_PER_SLICE}")
        out.depth -= 1

    def _elements(self, row: FieldRow, target: str, length: str, *, flexible: bool) -> None:
        out = self.out
        out.emit(f"{target} = []")
        out.emit(f"for _ in range({length}):")
        out.depth += 1
        self._end_slice()
        if row.struct is not None:
            element = self._struct(row.struct, flexible=flexible)
        else:
            element = out.fresh("v")
            self._blob(row.kind, element, nullable=False, flexible=flexible)
        out.emit(f"{target}.append({element})")
        out.depth -= 1

    # ---- tagged fields ----------------------------------------------------------------------------------------------

    def _tags(self, tagged: list[tuple[FieldRow, str]]) -> str:
        """Emit the code for the tagged fields. Return the variable with the tuple of unknown tagged fields."""
        out, count, unknown = self.out, self.out.fresh("n"), self.out.fresh("t")
        self._unsigned_varint(count)
        for row, name in tagged:
            out.emit(f"{name} = {self._default(row)}")
        out.emit(f"{unknown} = ()")
        out.emit(f"if {count}:")
        out.depth += 1
        out.emit(f"if {count} * {TAG_BYTES_MIN} > e - p or {count} > {TAGGED_FIELDS_MAX}: raise short({count})")
        self._charge(f"{count} * {TAG_BYTES}")
        tag, last, size, end = out.fresh("g"), out.fresh("l"), out.fresh("n"), out.fresh("q")
        out.emit(f"{unknown} = []")
        out.emit(f"{last} = -1")
        out.emit(f"for _ in range({count}):")
        out.depth += 1
        self._end_slice()
        self._unsigned_varint(tag)
        out.emit(f"if {tag} <= {last}: raise Malformed('tags are not in ascending order')")
        out.emit(f"{last} = {tag}")
        self._unsigned_varint(size)
        out.emit(f"{end} = p + {size}")
        out.emit(f"if {end} > e: raise short({size})")
        branch = "if"
        for row, name in sorted(tagged, key=lambda pair: pair[0].tag):
            out.emit(f"{branch} {tag} == {row.tag}:")
            branch = "elif"
            out.depth += 1
            out.path.append(row.name)
            value = self._field(row, flexible=row.flexible_in(self.version, True), tagged=True)
            self._flush()
            out.emit(f"{name} = {value}")
            out.emit(f"if p != {end}: raise Malformed('tagged field does not have its declared size')")
            out.path.pop()
            out.depth -= 1
        out.emit("else:" if tagged else "if True:")
        out.emit(f"    c -= {size}")
        out.emit("    if c < 0: raise exceeded()")
        out.emit(f"    {unknown}.append(({tag}, bytes(b[p:{end}])))")
        out.emit(f"    p = {end}")
        out.depth -= 1
        out.emit(f"{unknown} = tuple({unknown})")
        out.depth -= 1
        return unknown
