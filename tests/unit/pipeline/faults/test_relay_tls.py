"""The relay between a client and a broker that use TLS."""

from __future__ import annotations

import asyncio
import gc
import ssl
import warnings
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.cluster.access import Access
from odradek.pipeline.faults.certificate import make_certificate
from odradek.pipeline.faults.relay import Relay, end, read_frame, write_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HEADER = b"\x00\x24\x00\x02\x00\x00\x00\x07"
"""SaslAuthenticate, version 2, correlation id 7."""
RESPONSE = HEADER[4:] + b"response"


async def exchanged(relayed: Access, context: ssl.SSLContext, request: bytes) -> bytes:
    host, _, port = relayed.bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    write_frame(writer, request)
    try:
        return await read_frame(reader)
    finally:
        await end(writer)


@asynccontextmanager
async def relayed_broker(received: list[bytes]) -> AsyncIterator[tuple[Relay, Access, str]]:
    """Run a broker with TLS that notes the frames, and a relay for it.

    Provide the relay, the access to it, and the broker's certificate authority.
    """
    broker = make_certificate("127.0.0.1")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            received.append(await read_frame(reader))
            write_frame(writer, RESPONSE)
            await reader.read()
        finally:
            await end(writer)
            ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=broker.server_context())
    port = server.sockets[0].getsockname()[1]
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": broker.trusted}
    relay = Relay(Access(f"127.0.0.1:{port}", {"security.protocol": "SSL", **trust}))
    relayed = await asyncio.to_thread(relay.start)
    try:
        yield relay, relayed, broker.trusted
        await ended.wait()
    finally:
        server.close()


async def test_frames_of_a_login_pass_between_two_connections_with_tls() -> None:
    received: list[bytes] = []
    async with relayed_broker(received) as (relay, relayed, authority):
        try:
            trusted = ssl.create_default_context(cadata=relayed.confluent()["ssl.ca.pem"])
            assert await exchanged(relayed, trusted, HEADER + b"request") == RESPONSE
            assert received == [HEADER + b"request"]
            with pytest.raises(ssl.SSLCertVerificationError):
                await exchanged(relayed, ssl.create_default_context(cadata=authority), HEADER)
        finally:
            await asyncio.to_thread(relay.stop)


async def test_all_connections_are_closed_after_the_stop_although_no_peer_responds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek.pipeline.faults.relay.CLOSE_SECONDS_MAX", 0.1)
    async with relayed_broker([]) as (relay, relayed, _):
        host, _, port = relayed.bootstrap.rpartition(":")
        trusted = ssl.create_default_context(cadata=relayed.confluent()["ssl.ca.pem"])
        reader, writer = await asyncio.open_connection(host, int(port), ssl=trusted)
        write_frame(writer, HEADER + b"request")
        assert await read_frame(reader) == RESPONSE
        gc.collect()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            relay.stop()  # it blocks the event loop of the client and of the broker
            gc.collect()
        assert [str(warning.message) for warning in caught] == []
        await end(writer)
