"""Content of records as text."""

from __future__ import annotations

import io
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from fastavro import schemaless_writer

from odradek.client.errors import InvalidArgument
from odradek.console.model.avro import AvroUndecodable, avro_json, parsed_schema
from odradek.console.model.content import PAGE_BYTES_MAX, Format, decode, dump, indented, visible
from odradek.console.model.registry import SchemaRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator

PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "user", "type": "string"}, {"name": "amount", "type": "long"}, {"name": "id", "type": "bytes"}],
}
RESPONSES = {
    "/schemas/ids/7": {"schema": json.dumps(PAYMENT)},
    "/schemas/ids/8": {"schema": "...", "schemaType": "PROTOBUF"},
    "/schemas/ids/9": {"schema": json.dumps({"type": "array", "items": "null"})},
}


@pytest.mark.parametrize(
    ("content", "wanted", "expected"),
    [
        (None, Format.AUTO, ("null", "null")),
        (b"", Format.AUTO, ("text", "")),
        (b"a b", Format.AUTO, ("text", "a b")),
        (b'{"a": 1}', Format.AUTO, ("json", '{"a": 1}')),
        (b'{"a": 1', Format.AUTO, ("text", '{"a": 1')),
        (b"17", Format.AUTO, ("text", "17")),
        (b"a\xff\x01", Format.AUTO, ("hex", "61 ff 01")),
        (b"a\x01", Format.AUTO, ("hex", "61 01")),
        (b"a\x01", Format.TEXT, ("text", "a\\u0001")),
        (b"ab", Format.HEX, ("hex", "61 62")),
        (b"\x00\x00\x00\x00\x07abc", Format.AUTO, ("hex", "00 00 00 00 07 61 62 63")),
        ("ü".encode() * 300, Format.AUTO, ("text", "ü" * 200)),
        (b"[" * 100_000, Format.AUTO, ("text", "[" * 400)),
    ],
)
async def test_format_is_the_first_that_fits(content: bytes | None, wanted: Format, expected: tuple[str, str]) -> None:
    found = await decode(content, wanted, None)
    assert (found.format, found.text) == expected


async def test_page_shows_json_in_lines_with_its_own_numbers() -> None:
    found = await decode(
        b'{"b":[],"a":[1.10,12345678901234567890123],"c":{"d":"x, {y\\""}}', Format.AUTO, None, pretty=True
    )
    lines = ["{", '  "b": [],', '  "a": [', "    1.10,", "    12345678901234567890123", "  ],", '  "c": {']
    assert found.text.splitlines() == [*lines, '    "d": "x, {y\\""', "  }", "}"]
    assert json.loads(indented('{"a":[{},[[]],{"b":null}]}')) == {"a": [{}, [[]], {"b": None}]}


async def test_content_is_bounded() -> None:
    found = await decode(b"a" * (PAGE_BYTES_MAX + 1), Format.AUTO, None, pretty=True)
    assert (len(found.text), found.size, found.truncated) == (PAGE_BYTES_MAX, PAGE_BYTES_MAX + 1, True)


def test_characters_that_change_the_order_of_text_are_shown_as_codes() -> None:
    assert visible("a\u202eb\u200bc\x1b[0m\ud800") == "a\\u202eb\\u200bc\\u001b[0m\\ud800"
    assert visible("ü\n") == "ü\n"


def test_dump_has_positions_bytes_and_characters() -> None:
    first, second = dump(b"0123456789abcdef<\x00").splitlines()
    assert first == "000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef"
    assert second.split() == ["000010", "3c", "00", "<."]


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = RESPONSES.get(self.path)
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *arguments: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield SchemaRegistry(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    thread.join()
    server.server_close()


def wire(schema_id: int, value: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + value


async def test_avro_is_decoded_by_the_schema_of_the_registry(registry: SchemaRegistry) -> None:
    body = io.BytesIO()
    schemaless_writer(body, parsed_schema(PAYMENT), {"user": "<b>", "amount": 3, "id": b"\x01\x02"})
    found = await decode(wire(7, body.getvalue()), Format.AUTO, registry)
    assert (found.format, found.text) == ("avro", '{"user": "<b>", "amount": 3, "id": "01 02"}')
    damaged = await decode(wire(7, b"\xff"), Format.AUTO, registry)
    assert (damaged.format, damaged.note.startswith("not of its schema")) == ("hex", True)


@pytest.mark.parametrize(
    ("schema_id", "note"), [(1, "responded with 404"), (8, "is not of Avro"), (9, "items have no bytes")]
)
async def test_value_without_a_usable_schema_is_shown_as_bytes(
    registry: SchemaRegistry, schema_id: int, note: str
) -> None:
    found = await decode(wire(schema_id, b"\x02a"), Format.AUTO, registry)
    assert found.format == "hex"
    assert note in found.note


def test_deep_value_of_a_recursive_schema_is_refused() -> None:
    schema = parsed_schema({"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]})
    with pytest.raises(AvroUndecodable, match="too deep"):
        avro_json(schema, b"\x02" * 60_000 + b"\x00")


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "null"}]},
    ],
)
def test_schema_with_items_without_bytes_is_refused(items: Any) -> None:
    with pytest.raises(AvroUndecodable, match="no bytes"):
        parsed_schema(
            {"type": "record", "name": "A", "fields": [{"name": "a", "type": {"type": "array", "items": items}}]}
        )


def test_address_of_a_registry_is_http() -> None:
    with pytest.raises(InvalidArgument):
        SchemaRegistry("file:///etc/passwd")
