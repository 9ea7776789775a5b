"""Content of records as text."""

from __future__ import annotations

import json
import unicodedata

import pytest

from odradek.console.model.content import PAGE_BYTES_MAX, Format, decode, dump, indented, visible


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
    assert json.loads(indented('{"a":[{},[[]],{"b":null}]}', 1_000)) == {"a": [{}, [[]], {"b": None}]}


async def test_content_is_bounded() -> None:
    found = await decode(b"a" * (PAGE_BYTES_MAX + 1), Format.AUTO, None, pretty=True)
    assert (len(found.text), found.size, found.truncated) == (PAGE_BYTES_MAX, PAGE_BYTES_MAX + 1, True)


async def test_deep_json_has_a_page_of_bounded_size() -> None:
    deep = b"[" * 900 + b"0," * 100_000 + b"0" + b"]" * 900
    found = await decode(deep, Format.AUTO, None, pretty=True)
    assert (found.format, len(found.text), found.truncated) == ("json", PAGE_BYTES_MAX, True)
    assert len(indented(deep.decode(), PAGE_BYTES_MAX)) < 2 * PAGE_BYTES_MAX


async def test_long_number_is_json() -> None:
    number = b'{"a": ' + b"9" * 100_000 + b"}"
    assert (await decode(number, Format.AUTO, None)).format == "json"


def test_invisible_characters_are_shown_as_codes() -> None:
    hidden = {"Cc", "Cf", "Cs", "Co"}
    characters = [chr(code) for code in range(0x11_0000)]
    found = [each for each in characters if unicodedata.category(each) in hidden and each not in "\n\t"]
    assert [each for each in found if visible(each) == each] == []
    assert visible(" ~\n\t\u00e4\u4e00\U0001f600") == " ~\n\t\u00e4\u4e00\U0001f600"


def test_characters_that_change_the_order_of_text_are_shown_as_codes() -> None:
    assert visible("a\u202eb\u200bc\x1b[0m\ud800") == "a\\u202eb\\u200bc\\u001b[0m\\ud800"
    assert visible("ü\n") == "ü\n"


def test_dump_has_positions_bytes_and_characters() -> None:
    first, second = dump(b"0123456789abcdef<\x00").splitlines()
    assert first == "000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef"
    assert second.split() == ["000010", "3c", "00", "<."]
