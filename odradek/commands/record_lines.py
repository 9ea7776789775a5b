"""Read records from lines of standard input."""

from __future__ import annotations

import asyncio
import codecs
import io
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek import client
from odradek.commands.content import ESCAPES, Headers, bytes_of, from_json, headers_from_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

READ_BYTES = 65_536
"""Maximum bytes per read of standard input."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """Format of input lines, and the fields that all records have.

    Attributes:
        headers: Headers of all records, after those of the line.
        partition: Partition of all records; None selects it by the key.
        separator: Text between key and value of a line; None: a line is a value.
        as_json: A line is JSON, as `odradek consume --json` prints it.
    """

    headers: Headers = ()
    partition: int | None = None
    separator: str | None = None
    as_json: bool = False

    def record(self, line: str, number: int) -> client.ProducerRecord:
        """Return the record of a line. `number` counts lines from 1. Raise ClientError if the line is malformed."""
        origin = f"line {number}"
        key, value, headers = self._json(line, origin) if self.as_json else (*self._text(line, origin), ())
        return client.ProducerRecord(key, value, (*headers, *self.headers), self.partition)

    def _text(self, line: str, origin: str) -> tuple[bytes | None, bytes]:
        if self.separator is None:
            return None, bytes_of(line, origin)
        key, separator, value = line.partition(self.separator)
        if not separator:
            raise client.ClientError(f"{origin}: no {self.separator!r} between key and value")
        return bytes_of(key, origin), bytes_of(value, origin)

    @staticmethod
    def _json(line: str, origin: str) -> tuple[bytes | None, bytes | None, Headers]:
        """Parse a line of JSON. A missing key or value is null."""
        try:
            row = json.loads(line)
        except ValueError as error:
            raise client.ClientError(f"{origin}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise client.ClientError(f'{origin}: expected {{"key": ..., "value": ..., "headers": [...]}}')
        headers = headers_from_json(row.get("headers", []), origin)
        return from_json(row.get("key"), origin), from_json(row.get("value"), origin), headers


def parse_header(pair: str) -> tuple[str, bytes | None]:
    """Parse NAME=VALUE, or NAME for a header without a value. Raise InvalidArgument if the name is empty."""
    name, equals, value = pair.partition("=")
    if not name:
        raise client.InvalidArgument(f"--header {pair}: expected name=value")
    return name, bytes_of(value, f"--header {name}") if equals else None


async def lines_of(descriptor: int) -> AsyncIterator[list[str]]:
    """Yield the lines of a file descriptor as they arrive, without blocking the event loop.

    It uses no thread: a thread that waits for standard input cannot be stopped, and would delay the end on Ctrl-C.
    """
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")(ESCAPES), translate=True)
    rest = ""
    async for data in _chunks(descriptor):
        *lines, rest = (rest + decoder.decode(data)).split("\n")
        if lines:
            yield lines
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest.removesuffix("\n").split("\n")


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield the data of a file descriptor as it arrives, until the end of the file."""
    while True:
        await _readable(descriptor)
        data = os.read(descriptor, READ_BYTES)
        if not data:
            return
        yield data


async def _readable(descriptor: int) -> None:
    """Wait until a read does not block.

    The descriptor is registered for each read. Otherwise, a notification from before the last read could remain set,
    and the next read would block the event loop.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:  # a regular file: epoll refuses it, and a read of it does not block
        return
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
