"""Avro values as JSON. Values and schemas come from producers, so they must not stop the console."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fastavro import _read_py, parse_schema
from fastavro.schema import SchemaParseException

from odradek.console.model.avro_decoder import AvroDecoder, AvroUndecodable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

READER: Final[Any] = _read_py
"""fastavro's reader in Python.

The compiled one ends the process with a segmentation fault if a value of a recursive schema is nested deeply.
"""

SCHEMA_VALUES_MAX: Final = 10_000
"""Maximum values of a record type, its own records included, that are decoded whatever the content is."""
EMPTY_RECORDS_MAX: Final = 16
"""Maximum records without fields in a record type. Content of any size has none of their bytes."""
DEPTH_MAX: Final = 64
"""Maximum depth of a type in a schema."""
DECIMAL_BYTES_MAX: Final = 512
"""Maximum bytes of a decimal number. The conversion of a longer one takes quadratic time."""
DECIMAL: Final = "bounded-decimal"
"""Logical type that stands for `decimal` in parsed schemas."""
RECORDS: Final = frozenset({"record", "error"})
PARSER_NAMES: Final = "__"
"""Start of names that fastavro gives to its own notes in a schema. It would not check a schema that has them."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A parsed schema: its type, and the named types."""

    root: Any
    named: Mapping[str, Any]


def avro_text(schema: AvroSchema, content: bytes, *, values_max: int, pretty: bool) -> str:
    """Decode a value as JSON text. Raise AvroUndecodable if it does not have this schema, or if it exceeds a limit."""
    decoder = AvroDecoder(content, values_max)
    try:
        value = READER.read_data(decoder, schema.root, {"writer": schema.named, "reader": {}})
        return json.dumps(_json_of(value), ensure_ascii=False, indent=2 if pretty else None)
    except AvroUndecodable:
        raise
    except RecursionError:
        raise AvroUndecodable("too deep") from None
    except Exception as error:
        raise AvroUndecodable(f"not of its schema: {type(error).__name__}") from error


def parse_definitions(definitions: Sequence[Any]) -> AvroSchema:
    """Parse a schema, the last one, after the schemas to which it refers.

    Raise AvroUndecodable if one of them is invalid, or if values without content have any number of parts.
    """
    named: dict[str, Any] = {}
    root: Any = None
    try:
        for definition in definitions:
            root = parse_schema(_checkable(definition), named)
        _Weights(named).check(root)
    except (SchemaParseException, LookupError, TypeError, ValueError, AttributeError) as error:
        raise AvroUndecodable(f"the schema is invalid: {type(error).__name__}") from error
    except RecursionError:
        raise AvroUndecodable("the schema is too deep") from None
    return AvroSchema(root, named)


class _Weights:
    """Numbers of values that types have whatever the content is: up to the next union, array or map."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known: dict[str, tuple[int, int]] = {}
        self._open: set[str] = set()
        self._pending: list[tuple[Any, int]] = []

    def check(self, root: Any) -> None:
        """Check a type and the named types. Raise AvroUndecodable if one of them exceeds a limit."""
        self._pending = [(each, 0) for each in (root, *self._named.values())]
        while self._pending:
            self._of(*self._pending.pop())

    def _of(self, schema: Any, depth: int) -> tuple[int, int]:
        """Return the number of values of a type, and how many of them are records without fields.

        Types behind a union, array or map remain to be checked: a record may contain itself there.
        """
        if depth > DEPTH_MAX:
            raise AvroUndecodable(f"the schema is deeper than {DEPTH_MAX}")
        if isinstance(schema, list):
            self._pending += [(each, depth + 1) for each in schema if not self._is_named(each)]
            return 1, 0
        if isinstance(schema, str):
            return self._of_record(schema, self._named[schema], depth) if schema in self._named else (1, 0)
        kind = schema["type"]
        if kind in RECORDS:
            return self._of_record(schema["name"], schema, depth)
        if kind in {"array", "map"}:
            inner = schema["items" if kind == "array" else "values"]
            self._pending += [] if self._is_named(inner) else [(inner, depth + 1)]
        return 1, 0

    def _is_named(self, schema: Any) -> bool:
        """Return True if a type is checked as a named type."""
        return isinstance(schema, str) or (isinstance(schema, dict) and "name" in schema)

    def _of_record(self, name: str, schema: Any, depth: int) -> tuple[int, int]:
        if name in self._known or schema["type"] not in RECORDS:
            return self._known.get(name, (1, 0))
        if name in self._open:
            raise AvroUndecodable(f"the record {name[:100]} of the schema contains itself")
        self._open.add(name)
        fields = [self._of(field["type"], depth + 1) for field in schema["fields"]]
        self._open.discard(name)
        values = 1 + sum(each for each, _ in fields)
        empty = sum(each for _, each in fields) if fields else 1
        if values > SCHEMA_VALUES_MAX or empty > EMPTY_RECORDS_MAX:
            raise AvroUndecodable(f"the record {name[:100]} of the schema has too many parts")
        self._known[name] = values, empty
        return values, empty


def _checkable(definition: Any) -> Any:
    """Return a schema without names that only fastavro may set, and with decimals of a bounded size."""
    if isinstance(definition, list):
        return [_checkable(each) for each in definition]
    if not isinstance(definition, dict):
        return definition
    found = {name: _checkable(each) for name, each in definition.items() if not str(name).startswith(PARSER_NAMES)}
    if found.get("logicalType") == "decimal":
        found["logicalType"] = DECIMAL
    return found


def _decimal(content: bytes, schema: Mapping[str, Any], reader_schema: object = None) -> Any:
    """Return a decimal number, or its bytes if there are too many."""
    return content if len(content) > DECIMAL_BYTES_MAX else _read_decimal(content, schema, reader_schema)


_read_decimal = READER.LOGICAL_READERS["bytes-decimal"]
for _kind in ("bytes", "fixed"):
    READER.LOGICAL_READERS[f"{_kind}-{DECIMAL}"] = _decimal


def _json_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _json_of(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json_of(each) for each in value]
    if isinstance(value, bytes | bytearray):
        return value.hex(" ")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
