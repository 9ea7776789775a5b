"""Corrupt requests and requests with invalid values, of each API and version, on the TCP sockets of a complete node.

The node sends a response or closes the connection. It raises no unexpected exception, serves other clients, and frees
the bytes that it held for the connection.
"""

import asyncio
import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import structlog

from odradek.broker.dispatch.table import API_TABLE
from odradek.broker.requests.api import AnyApi
from odradek.protocol.codec import encode, request_header_version
from odradek.protocol.messages.headers import RequestHeader
from odradek.protocol.messages.metadata import MetadataRequest
from tests.support.hostile_values import encodable
from tests.support.running_node import RunningNode, running

ROUNDS: Final = 8
"""Requests per API and version."""
TIMEOUT_S: Final = 20


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


WITH_GATED_VERSIONS = [
    api if api.gated is None else replace(api, max_version=api.gated.max_version) for api in API_TABLE
]
GATES = tuple(f"{api.gated.property_name}=true" for api in API_TABLE if api.gated is not None)


@pytest.mark.parametrize("api", WITH_GATED_VERSIONS, ids=lambda api: api.name)
async def test_invalid_and_corrupt_requests_do_not_affect_other_connections(api: AnyApi, tmp_path: Path) -> None:
    rng = random.Random(f"{api.name} 1")
    # A short request time-out limits the wait for requests with a long max.wait or transaction time-out.
    limits = ("max.connections=200", "auto.create.topics.enable=false", "request.timeout.ms=200", *GATES)
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
