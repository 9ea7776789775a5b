"""Values in Avro as JSON. Schemas and values that need unbounded time or memory are refused."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from odradek.console.model.avro import SCHEMA_VALUES_MAX, avro_text, parse_definitions
from odradek.console.model.avro_decoder import AvroUndecodable

VALUES_MAX = 1_000
LIST = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}


def record(name: str, *types: Any) -> dict[str, Any]:
    """Return a record type with one field per type."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{at}", "type": each} for at, each in enumerate(types)],
    }


def text(definition: Any, content: bytes) -> str:
    return avro_text(parse_definitions([definition]), content, values_max=VALUES_MAX, pretty=False)


def encoded(definition: Any, value: Any) -> bytes:
    body = io.BytesIO()
    schemaless_writer(body, parse_schema(definition), value)
    return body.getvalue()


@pytest.mark.parametrize(
    ("definition", "value", "expected"),
    [
        ("long", -(2**63), -(2**63)),
        ({"type": "map", "values": "int"}, {"<b>": 1}, {"<b>": 1}),
        ({"type": "array", "items": "null"}, [None, None], [None, None]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        (LIST, {"n": {"n": None}}, {"n": {"n": None}}),
        (record("A", ["null", record("B", "A")]), {"f0": None}, {"f0": None}),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("1.25"), "1.25"),
        (record("R", "boolean", "float", "double", "bytes"), {"f0": True, "f1": 0.5, "f2": 2.0, "f3": b"\x01"}, None),
    ],
)
def test_value_is_shown_as_json(definition: Any, value: Any, expected: Any) -> None:
    expected = {"f0": True, "f1": 0.5, "f2": 2.0, "f3": "01"} if expected is None else expected
    assert json.loads(text(definition, encoded(definition, value))) == expected


@pytest.mark.parametrize(
    ("definition", "content", "reason"),
    [
        (LIST, b"\x02" * 60_000 + b"\x00", "too deep|more than 1000 values"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\x00", "more than 1000 values"),
        ({"type": "array", "items": record("R")}, b"\xfe\xff\xff\xff\x0f\x00", "more than 1000 values"),
        ({"type": "map", "values": "null"}, b"\x02\x00" * 2_000 + b"\x00", "more than 1000 values"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, b"\xfe\xff\xff\xff\x0f", "more than"),
        ("long", b"\xff" * 200_000 + b"\x00", "ValueError"),
        ("long", b"", "EOFError"),
        (["null", "int"], b"\x01\x02", "ValueError"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "ValueError"),
        ("string", b"\x04\xff\xfe", "UnicodeDecodeError"),
        ("bytes", b"\xfe\xff\xff\xff\x0f", "EOFError"),
    ],
)
def test_value_that_exceeds_a_limit_or_is_damaged_is_refused(definition: Any, content: bytes, reason: str) -> None:
    with pytest.raises(AvroUndecodable, match=reason):
        text(definition, content)


def test_long_decimal_is_shown_as_bytes() -> None:
    definition = {"type": "bytes", "logicalType": "decimal", "precision": 9}
    content = b"\x7f" * 100_000
    assert json.loads(text(definition, encoded("bytes", content))) == content.hex(" ")


def test_records_that_multiply_their_fields_are_refused() -> None:
    doubled = record("R0", "null")
    for number in range(1, 40):
        doubled = record(f"R{number}", doubled, f"R{number - 1}")
    with pytest.raises(AvroUndecodable, match="has too many parts"):
        parse_definitions([doubled])
    with pytest.raises(AvroUndecodable, match="has too many parts"):
        parse_definitions([record("A", record("E"), *["E"] * 16)])
    with pytest.raises(AvroUndecodable, match="has too many parts"):
        parse_definitions([record("A", *["int"] * SCHEMA_VALUES_MAX)])


@pytest.mark.parametrize("definition", [record("A", "A"), record("A", record("B", "A"))])
def test_record_that_contains_itself_without_a_choice_is_refused(definition: Any) -> None:
    with pytest.raises(AvroUndecodable, match="contains itself"):
        parse_definitions([definition])


def test_deep_schema_is_refused() -> None:
    deep: Any = "int"
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    with pytest.raises(AvroUndecodable, match="deeper"):
        parse_definitions([deep])
    for _ in range(20_000):
        deep = {"type": "array", "items": deep}
    with pytest.raises(AvroUndecodable, match="too deep"):
        parse_definitions([deep])


def test_schema_cannot_replace_checks_by_notes_of_the_parser() -> None:
    bomb = record("X", *["null"] * 5)
    notes = {"__fastavro_parsed": True, "__named_schemas": {"X": bomb}}
    with pytest.raises(AvroUndecodable, match="UnknownType"):
        parse_definitions([{"type": "array", "items": "X", **notes}])


@pytest.mark.parametrize(
    "definition", [None, 7, {}, {"type": "record"}, record("A", {"type": []}), [[]], {"type": "x"}]
)
def test_invalid_schema_is_refused(definition: Any) -> None:
    with pytest.raises(AvroUndecodable):
        text(definition, b"\x00")
