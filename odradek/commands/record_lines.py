"""Records to be written, as lines of standard input."""

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


@dataclass(frozen=True, slots=True)
class LineFormat:
    """Format of the lines: values, keys and values around `separator`, or JSON. Headers and partition hold for every record."""

    headers: Headers = ()
    partition: int | None = None
    separator: str | None = None
    as_json: bool = False

    def record(self, line: str, number: int) -> client.ProducerRecord:
        """Return the record of a line. `number` counts lines from 1. Raise ClientError if the line is malformed."""
        what = f"line {number}"
        key, value, headers = self._json(line, what) if self.as_json else (*self._text(line, what), ())
        return client.ProducerRecord(key, value, (*headers, *self.headers), self.partition)

    def _text(self, line: str, what: str) -> tuple[bytes | None, bytes]:
        if self.separator is None:
            return None, bytes_of(line, what)
        key, found, value = line.partition(self.separator)
        if not found:
            raise client.ClientError(f"{what}: no {self.separator!r} between key and value")
        return bytes_of(key, what), bytes_of(value, what)

    @staticmethod
    def _json(line: str, what: str) -> tuple[bytes | None, bytes | None, Headers]:
        """Parse a line as `odradek consume --json` prints it. A missing name stands for null."""
        try:
            row = json.loads(line)
        except ValueError as error:
            raise client.ClientError(f"{what}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise client.ClientError(f'{what}: expected {{"key": ..., "value": ..., "headers": [...]}}')
        headers = headers_from_json(row.get("headers", []), what)
        return from_json(row.get("key"), what), from_json(row.get("value"), what), headers


def parse_header(pair: str) -> tuple[str, bytes | None]:
    """Parse NAME=VALUE, or NAME for a header without a value. Raise InvalidArgument if the name is empty."""
    name, equals, value = pair.partition("=")
    if not name:
        raise client.InvalidArgument(f"--header {pair}: expected name=value")
    return name, bytes_of(value, f"--header {name}") if equals else None


async def lines_of(descriptor: int) -> AsyncIterator[list[str]]:
    """Yield the lines of a file descriptor as they arrive, without blocking the event loop and without a thread.

    A thread that reads standard input could not be stopped, so that the command would not end on Ctrl-C.
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
    """Yield data as soon as it arrives, up to the end of the file."""
    while True:
        await _readable(descriptor)
        data = os.read(descriptor, READ_BYTES)
        if not data:
            return
        yield data


async def _readable(descriptor: int) -> None:
    """Wait until a read does not block.

    The descriptor is registered for each read: a notification from before the last read would let the next one block the event loop.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:  # a regular file, which epoll refuses since it is always readable
        return
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
