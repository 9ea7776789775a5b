"""Corrupt requests and requests with invalid values, of each API and version, on the TCP sockets of a complete node.

The node sends a response or closes the connection. It raises no unexpected exception, serves other clients, and frees
the bytes that it held for the connection.
"""

import asyncio
import dataclasses
import random
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from odradek.broker.dispatch.table import API_TABLE
from odradek.broker.requests.api import AnyApi
from odradek.protocol.batch import build_batch
from odradek.protocol.codec import encode, request_header_version
from odradek.protocol.errors import Unencodable
from odradek.protocol.messages.headers import RequestHeader
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.schema import Message, Struct
from tests.support.running_node import RunningNode, running

ROUNDS: Final = 8
"""Requests per API and version."""
TIMEOUT_S: Final = 20
NUMBERS: Final = (-(2**31), -2, -1, 0, 1, 2, 7, 100, 2**31 - 1)
TEXTS: Final = ("", "t", "missing", ".", "..", "../../etc/passwd", "a b", "é" * 200, "__transaction_state", "x" * 300)


def invalid(kind: type[Struct], rng: random.Random, depth: int = 0) -> Any:
    """Generate a message with values that no client sends. Some fields keep their defaults."""
    message: Any = kind()
    hints = {field.name: str(field.type) for field in dataclasses.fields(message)}
    for name, hint in hints.items():
        if name == "unknown_tagged_fields" or rng.random() < 0.3:
            continue
        value = invalid_value(kind, hint, rng, depth)
        if value is not None:
            setattr(message, name, value)
    return message


def invalid_value(kind: type[Struct], hint: str, rng: random.Random, depth: int) -> Any:
    inner = hint.removesuffix(" | None")
    if inner.startswith("list["):
        item = inner[5:-1]
        values = [invalid_value(kind, item, rng, depth + 1) for _ in range(rng.choice((0, 1, 3)))]
        return [value for value in values if value is not None]
    if inner == "int":
        return rng.choice(NUMBERS)
    if inner == "str":
        return rng.choice(TEXTS)
    if inner == "bool":
        return rng.random() < 0.5
    if inner == "UUID":
        return uuid.UUID(int=rng.choice((0, 1, 2**127)))
    if "Buffer" in inner or "bytes" in inner:
        return rng.choice((b"", b"\x00" * 70, batch(), batch()[:-3], batch()[:40] + b"\xff" + batch()[41:]))
    nested = getattr(__import__(kind.__module__, fromlist=[inner]), inner, None)
    return invalid(nested, rng, depth + 1) if isinstance(nested, type) and depth < 6 else None


def batch() -> bytes:
    return build_batch([(b"k", b"v", 1_700_000_000_000, ())])


def bodies(api: AnyApi, version: int, rng: random.Random) -> Iterator[bytes]:
    """Generate request bodies for one version: with invalid values, truncated, modified and random."""
    for number in range(ROUNDS):
        body = encodable(api.request, version, rng)
        match number % 4:
            case 0:
                yield body
            case 1:
                yield body[: rng.randrange(len(body) + 1)]
            case 2:
                position = rng.randrange(len(body) + 1)
                yield body[:position] + rng.randbytes(rng.randrange(1, 9)) + body[position + 1 :]
            case _:
                yield rng.randbytes(rng.randrange(200))


def encodable(kind: type[Message], version: int, rng: random.Random) -> bytes:
    """Generate a message that `version` can encode. Repeat while a field or a value does not fit that version."""
    for _ in range(50):
        try:
            return encode(invalid(kind, rng), version)
        except (Unencodable, struct.error, ValueError, OverflowError, TypeError):
            continue
    return encode(kind(), version)


def frame(api: AnyApi, version: int, body: bytes) -> bytes:
    header = encode(RequestHeader(api.key, version, 1, "hostile"), request_header_version(api.key, version))
    return struct.pack(">i", len(header) + len(body)) + header + body


async def send_on_new_connection(node: RunningNode, data: bytes) -> None:
    """Send bytes and the end of the stream, and read until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.node.listeners[0].port)
    writer.write(data)
    writer.write_eof()
    async with asyncio.timeout(TIMEOUT_S):
        await reader.read()
    writer.close()


@pytest.mark.parametrize("api", API_TABLE, ids=lambda api: api.name)
async def test_invalid_and_corrupt_requests_do_not_affect_other_connections(api: AnyApi, tmp_path: Path) -> None:
    rng = random.Random(f"{api.name} 1")
    # A short request time-out limits the wait for requests with a long max.wait or transaction time-out.
    limits = ("max.connections=200", "auto.create.topics.enable=false", "request.timeout.ms=200")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        async with running(tmp_path, *limits) as node:
            await node.node.broker.context.auto_topic_creation.create(["t", "__transaction_state"])
            for version in range(api.min_version, api.max_version + 1):
                for body in bodies(api, version, rng):
                    await send_on_new_connection(node, frame(api, version, body))
                    assert node.unexpected == [], (api.name, version, body.hex())
            await node.call(MetadataRequest(topics=None), 12)
            async with asyncio.timeout(TIMEOUT_S):
                while len(node.node.acceptor.connections) > 1:
                    await asyncio.sleep(0.01)
            assert node.node.acceptor.held_bytes == 0
    finally:
        structlog.reset_defaults()
