"""Damaged and absurd requests of every served API and version against a whole node, on real sockets.

Whatever comes, the answer is a response or the end of that one connection: no exception that nobody expected, no harm to
a client beside it, and the bytes that were held for it are given back.
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
from tests.unit.broker.test_node_smoke import Running, running

ROUNDS: Final = 8
"""Requests of each API and version; every one is damaged in its own way."""
ANSWER_WITHIN_S: Final = 20
NUMBERS: Final = (-(2**31), -2, -1, 0, 1, 2, 7, 100, 2**31 - 1)
TEXTS: Final = ("", "t", "missing", ".", "..", "../../etc/passwd", "a b", "é" * 200, "__transaction_state", "x" * 300)


def absurd(kind: type[Struct], rng: random.Random, depth: int = 0) -> Any:
    """A message whose fields hold what no client would send; unset fields keep their defaults."""
    made: Any = kind()
    hints = {field.name: str(field.type) for field in dataclasses.fields(made)}
    for name, hint in hints.items():
        if name == "unknown_tagged_fields" or rng.random() < 0.3:
            continue
        value = absurd_value(kind, hint, rng, depth)
        if value is not None:
            setattr(made, name, value)
    return made


def absurd_value(kind: type[Struct], hint: str, rng: random.Random, depth: int) -> Any:
    inner = hint.removesuffix(" | None")
    if inner.startswith("list["):
        item = inner[5:-1]
        made = [absurd_value(kind, item, rng, depth + 1) for _ in range(rng.choice((0, 1, 3)))]
        return [value for value in made if value is not None]
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
    return absurd(nested, rng, depth + 1) if isinstance(nested, type) and depth < 6 else None


def batch() -> bytes:
    return build_batch([(b"k", b"v", 1_700_000_000_000, ())])


def bodies(api: AnyApi, version: int, rng: random.Random) -> Iterator[bytes]:
    """Bodies for one version: absurd ones, and damaged copies of them."""
    for number in range(ROUNDS):
        body = encodable(api.request, version, rng)
        match number % 4:
            case 0:
                yield body
            case 1:
                yield body[: rng.randrange(len(body) + 1)]
            case 2:
                at = rng.randrange(len(body) + 1)
                yield body[:at] + rng.randbytes(rng.randrange(1, 9)) + body[at + 1 :]
            case _:
                yield rng.randbytes(rng.randrange(200))


def encodable(kind: type[Message], version: int, rng: random.Random) -> bytes:
    """Old versions lack fields and narrow numbers; what does not fit is drawn again."""
    for _ in range(50):
        try:
            return encode(absurd(kind, rng), version)
        except (Unencodable, struct.error, ValueError, OverflowError, TypeError):
            continue
    return encode(kind(), version)


def frame(api: AnyApi, version: int, body: bytes) -> bytes:
    header = encode(RequestHeader(api.key, version, 1, "hostile"), request_header_version(api.key, version))
    return struct.pack(">i", len(header) + len(body)) + header + body


async def one_connection(node: Running, data: bytes) -> None:
    """Send, say that nothing more comes, and take whatever the server says until it ends the connection or answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.node.listeners[0].port)
    writer.write(data)
    writer.write_eof()
    async with asyncio.timeout(ANSWER_WITHIN_S):
        await reader.read()
    writer.close()


@pytest.mark.parametrize("api", API_TABLE, ids=lambda api: api.name)
async def test_absurd_and_damaged_requests_harm_nobody(api: AnyApi, tmp_path: Path) -> None:
    rng = random.Random(f"{api.name} 1")
    # Waiting on purpose (max.wait, time-outs of transactions) is legal: it must not make this test wait too.
    limits = ("max.connections=200", "auto.create.topics.enable=false", "request.timeout.ms=200")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        async with running(tmp_path, *limits) as node:
            await node.node.broker.context.auto_topic_creation.create(["t", "__transaction_state"])
            for version in range(api.min_version, api.max_version + 1):
                for body in bodies(api, version, rng):
                    await one_connection(node, frame(api, version, body))
                    assert node.unexpected == [], (api.name, version, body.hex())
            await node.call(MetadataRequest(topics=None), 12)
            async with asyncio.timeout(ANSWER_WITHIN_S):
                while len(node.node.acceptor.connections) > 1:
                    await asyncio.sleep(0.01)
            assert node.node.acceptor.held_bytes == 0
    finally:
        structlog.reset_defaults()
