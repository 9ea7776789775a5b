"""The relay between a client and a broker that use TLS."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from odradek.pipeline.cluster.access import Access
from odradek.pipeline.faults.certificate import make_certificate
from odradek.pipeline.faults.relay import Relay, read_frame, write_frame

HEADER = b"\x00\x24\x00\x02\x00\x00\x00\x07"
"""SaslAuthenticate, version 2, correlation id 7."""


async def exchanged(relayed: Access, context: ssl.SSLContext, request: bytes) -> bytes:
    host, _, port = relayed.bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    write_frame(writer, request)
    try:
        return await read_frame(reader)
    finally:
        writer.close()


async def test_frames_of_a_login_pass_between_two_connections_with_tls() -> None:
    broker = make_certificate("127.0.0.1")
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await read_frame(reader))
        write_frame(writer, HEADER[4:] + b"response")

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=broker.server_context())
    port = server.sockets[0].getsockname()[1]
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": broker.trusted}
    relay = Relay(Access(f"127.0.0.1:{port}", {"security.protocol": "SSL", **trust}))
    relayed = await asyncio.to_thread(relay.start)
    try:
        trusted = ssl.create_default_context(cadata=relayed.confluent()["ssl.ca.pem"])
        assert await exchanged(relayed, trusted, HEADER + b"request") == HEADER[4:] + b"response"
        assert received == [HEADER + b"request"]
        with pytest.raises(ssl.SSLCertVerificationError):
            await exchanged(relayed, ssl.create_default_context(cadata=broker.trusted), HEADER)
    finally:
        await asyncio.to_thread(relay.stop)
        server.close()
