"""Compile the encoder of one (message, version) from generated Python source.

The encoder appends pieces to a list, which the caller joins. A run of fixed-size fields, lengths below 128 and empty
tagged sections becomes one Struct.pack. Large records are passed by reference.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.compilation.emitting import STRING_BYTES_MAX, CompiledCodec, Emitter, packer
from odradek.protocol.errors import Unencodable
from odradek.protocol.primitives import INT32_MAX, ONE_BYTE, ZERO_UUID, unsigned_varint
from odradek.protocol.schema import FIXED_FORMATS, FieldRow, Message, Packed, Struct, field_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LARGE_BYTES_MIN: Final = 4_096
"""Minimum bytes of a field that is passed by reference. Below it, a copy costs less than another entry in writev."""
ONE_BYTE_MAX: Final = 128
"""An unsigned varint below this value has one byte."""


ELEMENTS_PER_SLICE: Final = 1_000
"""Maximum elements that a slice of an encoder writes. They take about 2 ms: 2 µs for a struct of six fields."""


def compile_encoder(cls: type[Message], version: int, *, sliced: bool = False) -> CompiledCodec:
    """Compile the encoder of a message version.

    Its function is run(m) -> (pieces, indexes of the large pieces). It raises Unencodable, or the Python exception of a
    field with a wrong type or value. With `sliced`, the function is a generator: it yields the same pair after each
    slice and then empties both lists, and it returns the last pair. Arrays of structs may then contain `Packed`.
    """
    return _Encoder(cls, version, sliced=sliced).compile()


def compile_elements_encoder(cls: type[Message], version: int, element: type[Struct]) -> CompiledCodec:
    """Compile the sliced encoder of a list of structs `element`, which occur in an array of the message `cls`.

    It writes the elements without their number.
    """
    return _Encoder(cls, version, sliced=True).compile(element)


def _element_count(items: Sequence[Any]) -> int:
    return sum([item.count if item.__class__ is Packed else 1 for item in items])


def _too_long(length: int) -> Unencodable:
    return Unencodable(f"length {length} exceeds the limit of its type")


def _lacking() -> Unencodable:
    return Unencodable("not in this version, not ignorable, and not the default value")


def _numbers(layout: str, values: Sequence[int]) -> bytes:
    return struct.pack(f">{len(values)}{layout}", *values)


def _tagged_section(tags: list[tuple[int, bytes]]) -> bytes:
    if len(tags) == 1:
        tag, payload = tags[0]
        if tag < ONE_BYTE_MAX and len(payload) < ONE_BYTE_MAX:
            return b"".join((ONE_BYTE[1], ONE_BYTE[tag], ONE_BYTE[len(payload)], payload))
    tags.sort(key=lambda pair: pair[0])
    pieces = [unsigned_varint(len(tags))]
    last = -1
    for tag, payload in tags:
        if tag == last:
            raise Unencodable(f"tag {tag} occurs twice")
        last = tag
        pieces += (unsigned_varint(tag), unsigned_varint(len(payload)), payload)
    return b"".join(pieces)


class _Encoder:
    def __init__(self, cls: type[Message], version: int, *, sliced: bool) -> None:
        self.cls = cls
        self.version = version
        self.sliced = sliced
        self.flexible = cls.FLEXIBLE_MIN is not None and version >= cls.FLEXIBLE_MIN
        namespace: dict[str, Any] = {
            "uv": unsigned_varint,
            "one_byte": ONE_BYTE,
            "numbers": _numbers,
            "section": _tagged_section,
            "too_long": _too_long,
            "element_count": _element_count,
            "Packed": Packed,
            "lacking": _lacking,
            "Unencodable": Unencodable,
        }
        self.out = Emitter(f"{cls.NAME} v{version}", namespace)
        self.layout = ""  # struct format of the pending run of fixed-size values
        self.values: list[str] = []  # expressions of the pending run
        self.run_fields: dict[str, None] = {}  # field paths of the pending run, for error messages
        self.write = "w"
        self.in_tag = False

    def compile(self, element: type[Struct] | None = None) -> CompiledCodec:
        self.out.emit("pieces = []")
        self.out.emit("large = []")
        self.out.emit("w = pieces.append")
        if self.sliced:
            self.out.emit(f"k = {ELEMENTS_PER_SLICE}")
            self.out.emit("if False: yield pieces, large")  # a generator, although the message may have no arrays
        if element is None:
            self._struct(self.cls, "m", flexible=self.flexible)
            self._flush()
        else:
            self._structs(element, "m", flexible=self.flexible)
        self.out.emit("return pieces, large")
        return self.out.compile("m")

    # ---- fixed runs -------------------------------------------------------------------------------------------------

    def _fixed(self, layout: str, *values: str) -> None:
        if not self.layout:
            self.run_fields = {}
        self.run_fields[self.out.where()] = None
        self.layout += layout
        self.values = [*self.values, *values]  # a copy: the other branch still needs the previous list

    def _flush(self) -> None:
        if self.layout:
            self._emit_pack(self.layout, self.values)
        self.layout, self.values = "", []

    def _emit_pack(self, layout: str, values: Iterable[str]) -> None:
        if layout.strip("x"):
            pack = self.out.constant("p", packer(layout).pack)
            self.out.emit(f"{self.write}({pack}({', '.join(values)}))", fields=", ".join(self.run_fields))
        else:
            self.out.emit(f"{self.write}({bytes(len(layout))!r})")

    def _length_compact(self, length: str) -> None:
        """Emit the code for the pending run and an unsigned varint. The varint nearly always has one byte."""
        if not self.layout:
            self.out.emit(f"{self.write}(one_byte[{length}] if {length} < 128 else uv({length}))")
            return
        self.out.emit(f"if {length} < 128:")
        self.out.depth += 1
        self._emit_pack(self.layout + "B", [*self.values, length])
        self.out.depth -= 1
        self.out.emit("else:")
        self.out.depth += 1
        self._flush()
        self.out.emit(f"{self.write}(uv({length}))")
        self.out.depth -= 1

    # ---- structs ----------------------------------------------------------------------------------------------------

    def _struct(self, cls: type[Struct], source: str, *, flexible: bool) -> None:
        rows = field_rows(cls)
        for row in rows:
            if not row.in_version(self.version) and not row.ignorable:
                self.out.path.append(row.name)
                self.out.emit(f"if {self._differs(row, f'{source}.{row.name}')}: raise lacking()")
                self.out.path.pop()
        tagged = []
        for row in rows:
            if row.in_version(self.version):
                if row.tagged_in(self.version):
                    tagged.append(row)
                    continue
                self.out.path.append(row.name)
                self._field(row, f"{source}.{row.name}", flexible=row.flexible_in(self.version, flexible))
                self.out.path.pop()
        if flexible:
            self._tags(tagged, source)
        else:
            self.out.emit(
                f"if {source}.unknown_tagged_fields: raise Unencodable('tagged fields need a flexible version')"
            )

    def _differs(self, row: FieldRow, source: str) -> str:
        """Return the condition that the field does not have its default value."""
        nullable = f"{source} is None or " if row.ever_nullable() and row.default is not None else ""
        if row.default is None and not row.default_is_struct:
            return f"{source} is not None"
        if row.is_array:
            return f"{nullable}{source}"
        if row.struct is not None:
            nullable = f"{source} is None or " if row.ever_nullable() else ""
            parts = [f"({self._differs(inner, f'{source}.{inner.name}')})" for inner in field_rows(row.struct)]
            return nullable + " or ".join([*parts, f"{source}.unknown_tagged_fields"])
        if row.kind in {"bytes", "records"}:
            return f"{nullable}len({source})"
        if row.kind == "bool":
            return f"not {source}" if row.default else source
        if row.kind == "uuid":
            return f"{source}.int" if row.default == ZERO_UUID else f"{source} != {self.out.constant('k', row.default)}"
        return f"{source} != {row.default!r}"

    def _field(self, row: FieldRow, source: str, *, flexible: bool, tagged: bool = False) -> None:
        nullable = row.nullable_in(self.version)
        if row.is_array:
            self._array(row, source, nullable=nullable, flexible=flexible)
        elif row.struct is not None:
            if nullable:
                self._nullable_struct(row.struct, source, flexible=flexible, tagged=tagged)
            else:
                self._bound_struct(row.struct, source, flexible=flexible)
        elif row.kind == "uuid":
            self._fixed("16s", f"{source}.bytes")
        elif row.kind in FIXED_FORMATS:
            self._fixed(FIXED_FORMATS[row.kind], source)
        else:
            self._blob(row.kind, source, nullable=nullable, flexible=flexible)

    def _bound_struct(self, cls: type[Struct], source: str, *, flexible: bool) -> None:
        name = self.out.fresh("m")
        self.out.emit(f"{name} = {source}")
        self._struct(cls, name, flexible=flexible)

    def _nullable_struct(self, cls: type[Struct], source: str, *, flexible: bool, tagged: bool) -> None:
        # KIP-893: one byte before the struct, -1 for null. In a tagged field it is an unsigned varint, 0 for null.
        layout, values = self.layout, self.values
        null, present = ("0", "1") if tagged else ("-1", "1")
        self.out.emit(f"if {source} is None:")
        self.out.depth += 1
        self._fixed("b", null)
        self._flush()
        self.out.depth -= 1
        self.out.emit("else:")
        self.out.depth += 1
        self.layout, self.values = layout, values
        self._fixed("b", present)
        self._bound_struct(cls, source, flexible=flexible)
        self._flush()
        self.out.depth -= 1

    # ---- variable length --------------------------------------------------------------------------------------------

    def _blob(self, kind: str, source: str, *, nullable: bool, flexible: bool) -> None:
        """Emit the code for a string, bytes or records field."""
        out, data, length = self.out, self.out.fresh("s"), self.out.fresh("n")
        out.emit(f"{data} = {source}")
        one_more = " + 1" if flexible else ""
        if nullable:
            out.emit(f"if {data} is None:")
            out.emit(f"    {data} = b''")
            out.emit(f"    {length} = {0 if flexible else -1}")
            out.emit("else:")
            out.depth += 1
        if kind == "string":
            out.emit(f"{data} = {data}.encode()")
        out.emit(f"{length} = len({data}){one_more}")
        limit = (STRING_BYTES_MAX if kind == "string" else INT32_MAX - 1) + (1 if flexible else 0)
        out.emit(f"if {length} > {limit}: raise too_long({length})")
        if nullable:
            out.depth -= 1
        if flexible:
            self._length_compact(length)
            self.layout, self.values = "", []
        else:
            self._fixed("h" if kind == "string" else "i", length)
            self._flush()
        if kind != "string" and not self.in_tag:
            out.emit(f"if {length} >= {LARGE_BYTES_MIN + (1 if flexible else 0)}: large.append(len(pieces))")
        out.emit(f"{self.write}({data})")

    def _array(self, row: FieldRow, source: str, *, nullable: bool, flexible: bool) -> None:
        out, items, length = self.out, self.out.fresh("a"), self.out.fresh("n")
        count = "element_count" if self._may_be_packed(row) else "len"
        out.emit(f"{items} = {source}")
        if nullable:
            out.emit(f"if {items} is None:")
            out.emit(f"    {items} = ()")
            out.emit(f"    {length} = {0 if flexible else -1}")
            out.emit(f"else: {length} = {count}({items})" + (" + 1" if flexible else ""))
        else:
            out.emit(f"{length} = {count}({items})" + (" + 1" if flexible else ""))
        if flexible:
            self._length_compact(length)
            self.layout, self.values = "", []
        else:
            self._fixed("i", length)
            self._flush()
        if row.struct is None and row.kind in FIXED_FORMATS and row.kind != "uuid":
            out.emit(f"if {items}: {self.write}(numbers({FIXED_FORMATS[row.kind]!r}, {items}))")
            return
        if row.struct is not None:
            self._structs(row.struct, items, flexible=flexible)
            return
        item = self._begin_elements(items)
        if row.kind == "uuid":
            out.emit(f"{self.write}({item}.bytes)")
        else:
            self._blob(row.kind, item, nullable=False, flexible=flexible)
        out.emit("pass")
        out.depth -= 1

    def _may_be_packed(self, row: FieldRow) -> bool:
        return self.sliced and row.struct is not None and not self.in_tag

    def _structs(self, cls: type[Struct], items: str, *, flexible: bool) -> None:
        out, item = self.out, self._begin_elements(items)
        if self.sliced and not self.in_tag:
            out.emit(f"if {item}.__class__ is Packed:")
            out.emit("    large.append(len(pieces))")
            out.emit(f"    w({item}.data)")
            out.emit("    continue")
        self._struct(cls, item, flexible=flexible)
        self._flush()
        out.emit("pass")
        out.depth -= 1

    def _begin_elements(self, items: str) -> str:
        """Emit the head of a loop over the elements `items`. Return the variable of the element."""
        out, item = self.out, self.out.fresh("m")
        out.emit(f"for {item} in {items}:")
        out.depth += 1
        if self.sliced:
            out.emit("k -= 1")
            out.emit("if k < 0:")
            out.emit("    yield pieces, large")
            out.emit("    pieces.clear()")
            out.emit("    large.clear()")
            out.emit(f"    k = {ELEMENTS_PER_SLICE}")
        return item

    # ---- tagged fields ----------------------------------------------------------------------------------------------

    def _tags(self, tagged: list[FieldRow], source: str) -> None:
        out, tags = self.out, self.out.fresh("t")
        conditions = [f"({self._differs(row, f'{source}.{row.name}')})" for row in tagged]
        out.emit(f"if {' or '.join([f'{source}.unknown_tagged_fields', *conditions])}:")
        layout, values, write, in_tag = self.layout, self.values, self.write, self.in_tag
        out.depth += 1
        self._flush()
        out.emit(f"{tags} = list({source}.unknown_tagged_fields)")
        for row, condition in zip(tagged, conditions, strict=True):
            payload = out.fresh("s")
            out.path.append(row.name)
            out.emit(f"if {condition}:")
            out.depth += 1
            out.emit(f"{payload} = []")
            self.write, self.in_tag = out.fresh("w"), True
            out.emit(f"{self.write} = {payload}.append")
            self._field(row, f"{source}.{row.name}", flexible=row.flexible_in(self.version, True), tagged=True)
            self._flush()
            out.emit(f"{tags}.append(({row.tag}, b''.join({payload})))")
            out.depth -= 1
            out.path.pop()
        self.write, self.in_tag = write, in_tag
        out.emit(f"{write}(section({tags}))")
        out.depth -= 1
        out.emit("else:")
        out.depth += 1
        self.layout, self.values = layout + "x", values
        self._flush()
        out.depth -= 1
