"""Avro values as JSON. The values come from producers, so they must not stop the console."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from fastavro.types import Schema

DEPTH_MAX: Final = 64
"""Maximum depth of a schema."""


class AvroUndecodable(Exception):
    """A value could not be decoded. The message has the reason."""


def avro_json(schema: Schema, content: bytes) -> Any:
    """Decode a value, as values of JSON. Raise AvroUndecodable if it does not have this schema.

    The reader is fastavro's in Python. The compiled one ends the process with a segmentation fault if a value of a
    recursive schema is nested deeply.
    """
    from fastavro._read_py import schemaless_reader

    try:
        value = schemaless_reader(io.BytesIO(content), schema, None)
    except RecursionError:
        raise AvroUndecodable("too deep") from None
    except Exception as error:
        raise AvroUndecodable(f"not of its schema: {type(error).__name__}") from error
    return _json_of(value)


def parsed_schema(definition: Any) -> Schema:
    """Parse a schema. Raise AvroUndecodable if it is invalid, or if a short value can have any number of items."""
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException

    try:
        schema = parse_schema(definition)
        if _has_empty_items(schema, {}, 0):
            raise AvroUndecodable("the schema has arrays whose items have no bytes")
    except (SchemaParseException, KeyError, TypeError, ValueError, RecursionError) as error:
        raise AvroUndecodable(f"the schema is invalid: {type(error).__name__}") from error
    return schema


def _has_empty_items(schema: Any, named: dict[str, Any], depth: int) -> bool:
    """Return True if an array in a schema has items that may be encoded in no bytes."""
    if depth > DEPTH_MAX:
        raise AvroUndecodable(f"the schema is deeper than {DEPTH_MAX}")
    if isinstance(schema, list):
        return any(_has_empty_items(each, named, depth + 1) for each in schema)
    if not isinstance(schema, dict):
        return False
    if "name" in schema:
        named[schema["name"]] = schema
    match schema.get("type"):
        case "array":
            items = schema["items"]
            return _has_empty_items(items, named, depth + 1) or _is_empty(items, named, 0)
        case "map":
            return _has_empty_items(schema["values"], named, depth + 1)
        case "record" | "error":
            return any(_has_empty_items(each["type"], named, depth + 1) for each in schema["fields"])
        case dict() | list() as inner:
            return _has_empty_items(inner, named, depth + 1)
        case _:
            return False


def _is_empty(schema: Any, named: dict[str, Any], depth: int) -> bool:
    """Return True if values of a schema may be encoded in no bytes. A union has at least the byte of its branch."""
    if depth > DEPTH_MAX or isinstance(schema, list):
        return False
    if isinstance(schema, str):
        return schema == "null" or (schema in named and _is_empty(named[schema], named, depth + 1))
    match schema.get("type"):
        case "null":
            return True
        case "fixed":
            return cast("int", schema["size"]) == 0
        case "record" | "error":
            return all(_is_empty(each["type"], named, depth + 1) for each in schema["fields"])
        case dict() | list() as inner:
            return _is_empty(inner, named, depth + 1)
        case _:
            return False


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
