"""Records as lines of standard input, and as JSON."""

from __future__ import annotations

import asyncio
import os
import re
import time
from threading import Timer
from typing import TYPE_CHECKING

import pytest

from odradek.client import EARLIEST, LATEST, ClientError, InvalidArgument, ProducerRecord
from odradek.commands.content import from_json, json_of
from odradek.commands.record_lines import LineFormat, lines_of, parse_header
from odradek.commands.records import parse_start

if TYPE_CHECKING:
    from pathlib import Path

NOT_TEXT = b"\xff\xfe".decode(errors="surrogateescape")


async def read_lines(descriptor: int) -> list[str]:
    return [line async for lines in lines_of(descriptor) for line in lines]


def test_bytes_that_are_not_text_pass_through_arguments_and_lines() -> None:
    assert parse_header(f"name={NOT_TEXT}") == ("name", b"\xff\xfe")
    record = LineFormat(separator=":").record(f"{NOT_TEXT}:{NOT_TEXT}", 1)
    assert (record.key, record.value) == (b"\xff\xfe", b"\xff\xfe")
    with pytest.raises(ClientError, match="line 3: "):
        from_json("\ud800", "line 3")


@pytest.mark.parametrize("content", [None, b"", b"text", b"\xff\x00"])
def test_content_survives_json(content: bytes | None) -> None:
    assert from_json(json_of(content), "value") == content


def test_a_header_without_a_name_is_an_invalid_argument() -> None:
    assert parse_header("name") == ("name", None)
    with pytest.raises(InvalidArgument, match="expected name=value"):
        parse_header("=value")


def test_headers_and_partition_hold_for_every_record() -> None:
    form = LineFormat((("all", b"1"),), 2, as_json=True)
    line = '{"key": "k", "value": {"base64": "/w=="}, "headers": [["own", null]]}'
    assert form.record(line, 1) == ProducerRecord(b"k", b"\xff", (("own", None), ("all", b"1")), 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[]", 'expected {"key"'),
        ('{"value": 1}', "expected text, null or"),
        ('{"value": {"base64": "?"}}', "not base64"),
        ('{"headers": [["name"]]}', "expected headers as"),
    ],
)
def test_a_malformed_line_names_its_number(line: str, message: str) -> None:
    with pytest.raises(ClientError, match=re.escape(f"line 7: {message}")):
        LineFormat(as_json=True).record(line, 7)


def test_a_line_without_the_separator_names_its_number() -> None:
    with pytest.raises(ClientError, match=r"line 7: no '\|' between key and value"):
        LineFormat(separator="|").record("no separator", 7)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb", ["a", "b"]),
        (b"\n\n", ["", ""]),
        ("ключ\n".encode() + b"\xff\xfe\n", ["ключ", NOT_TEXT]),
    ],
)
async def test_lines_are_read_from_pipes_and_files_in_any_pieces(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    reader, writer = os.pipe()
    reading = asyncio.create_task(read_lines(reader))
    for position in range(len(data)):
        os.write(writer, data[position : position + 1])
        await asyncio.sleep(0)
    os.close(writer)
    assert await reading == lines
    os.close(reader)
    (tmp_path / "file").write_bytes(data)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    assert await read_lines(descriptor) == lines
    os.close(descriptor)


async def test_a_reader_that_waits_for_more_lines_can_be_cancelled() -> None:
    """The reader must wait in the event loop, also after its first read: a blocked event loop ignores Ctrl-C."""
    reader, writer = os.pipe()
    unblock = Timer(5.0, os.close, (writer,))
    unblock.start()
    began = time.monotonic()
    for data in (b"", b"a\n", b"a\n" * 9):
        reading = asyncio.create_task(read_lines(reader))
        if time.monotonic() - began < 4.0:
            os.write(writer, data)
        for _ in range(20):
            await asyncio.sleep(0.001)
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
    assert time.monotonic() - began < 4.0
    unblock.cancel()
    os.close(reader)
    os.close(writer)


def test_a_position_is_earliest_latest_or_an_offset() -> None:
    assert [parse_start(text) for text in ("earliest", "latest", "7")] == [EARLIEST, LATEST, 7]


@pytest.mark.parametrize("start", ["soon", "-1", "\N{SUPERSCRIPT TWO}"])
def test_any_other_position_is_an_invalid_argument(start: str) -> None:
    with pytest.raises(InvalidArgument, match="expected earliest, latest or an offset"):
        parse_start(start)
