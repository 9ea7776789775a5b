"""Logins by SaslHandshake v0: SASL messages without a request header follow it, as byte vectors (KIP-43)."""

from __future__ import annotations

import asyncio
import random
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from odradek.cluster.authorizer import Principal
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from odradek.protocol.sasl.scram import ITERATIONS_MIN, SCRAM_MECHANISMS
from odradek.protocol.sasl.scram_client import ScramClient
from tests.support.raw_client import encode_request
from tests.unit.broker.test_sasl_listener import RECEIVE_BYTES_MAX, Rig, log_in_as, metadata

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from odradek.broker.requests.session import Session

HANDSHAKE = bytes.fromhex("00000014 0011 0000 00000007 0003 6f6c64 0005 504c41494e")
"""SaslHandshake v0 with the correlation id 7, the client id `old` and the mechanism PLAIN."""
ACCEPTED = bytes.fromhex("00000011 00000007 0000 00000001 0005 504c41494e")
"""The response: no error, and the mechanism PLAIN."""
PASSWORD = bytes.fromhex("0000000d 00616c69636500733363726574")
"""The message of PLAIN of the user alice, without a request header."""
WRONG_PASSWORD = bytes.fromhex("0000000d 00616c696365007772306e67 78")
EMPTY = bytes(4)
"""A message without bytes: the response of PLAIN to a valid password."""
METADATA = encode_request(metadata(), 1, 8, "old")


class Socket:
    """A connection that sends and receives bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def receive(self) -> bytes:
        """Return the next frame with its size. Return no bytes if the broker has closed the connection."""
        async with asyncio.timeout(30):
            try:
                size = await self._reader.readexactly(4)
                return size + await self._reader.readexactly(struct.unpack(">i", size)[0])
            except (asyncio.IncompleteReadError, ConnectionError):
                return b""

    async def exchange(self, sent: bytes) -> bytes:
        self.writer.write(sent)
        return await self.receive()


@asynccontextmanager
async def connected(rig: Rig) -> AsyncIterator[Socket]:
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.nodes.port(1))
    try:
        yield Socket(reader, writer)
    finally:
        writer.close()


def session_of(rig: Rig) -> Session:
    """Return the session of the client with the client id of HANDSHAKE."""
    sessions = [connection._session for connection in rig.nodes.nodes[1].acceptor.connections]
    return next(one for one in sessions if one is not None and one.client_id == "old")


@asynccontextmanager
async def running(directory: Path, **settings: object) -> AsyncIterator[Rig]:
    rig = await Rig.start(directory, 1, **settings)
    try:
        yield rig
    finally:
        await rig.nodes.stop()


async def test_login_by_messages_without_a_header_has_these_bytes(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        for pieces in ([HANDSHAKE, PASSWORD, METADATA], [HANDSHAKE + PASSWORD + METADATA]):
            async with connected(rig) as old:
                for piece in pieces:
                    old.writer.write(piece)
                    await old.writer.drain()
                assert await old.receive() == ACCEPTED
                assert await old.receive() == EMPTY
                assert (await old.receive())[4:8] == METADATA[8:12]
                assert session_of(rig).principal == Principal("User", "alice")
        assert rig.counts.failed == 0


async def test_refused_message_without_a_header_closes_the_connection_without_a_response(tmp_path: Path) -> None:
    delay_s = 0.1
    large = struct.pack(">i", 40_000) + bytes(40_000)
    async with running(tmp_path, connection_failed_authentication_delay_ms=int(delay_s * 1_000)) as rig:
        for number, message in enumerate((WRONG_PASSWORD, EMPTY, METADATA, HANDSHAKE, large), 1):
            with structlog.testing.capture_logs() as logs:
                async with connected(rig) as old:
                    assert await old.exchange(HANDSHAKE) == ACCEPTED
                    started_s = asyncio.get_running_loop().time()
                    assert await old.exchange(message + METADATA) == b""
                    assert asyncio.get_running_loop().time() - started_s >= delay_s
            assert len([row for row in logs if row["event"] == "authentication failed"]) == 1
            assert not [row for row in logs if "wr0ng" in str(row)]
            assert rig.counts.failed == number


async def test_message_without_a_header_beyond_the_limit_closes_the_connection(tmp_path: Path) -> None:
    """The first bytes of a message are no API key, also after the login, when other requests have higher limits."""
    async with running(tmp_path) as rig:
        for size in (RECEIVE_BYTES_MAX + 1, -1, 2**31 - 1):
            for first in (HANDSHAKE, HANDSHAKE + PASSWORD + HANDSHAKE):
                async with connected(rig) as old:
                    assert await old.exchange(first) == ACCEPTED
                    if first != HANDSHAKE:
                        assert (await old.receive(), await old.receive()) == (EMPTY, ACCEPTED)
                    assert await old.exchange(struct.pack(">ihh", size, 0, 9)) == b""
        assert rig.counts.failed == 0


async def test_scram_messages_without_a_header_authenticate_the_user(tmp_path: Path) -> None:
    mechanism = SCRAM_MECHANISMS["SCRAM-SHA-256"]
    async with running(tmp_path, sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256") as rig:
        admin = await rig.connect()
        await log_in_as(admin)
        salted = mechanism.salted(b"passw0rd", b"a salt", ITERATIONS_MIN)
        new = ScramCredentialUpsertion("bob", mechanism.code, ITERATIONS_MIN, b"a salt", salted)
        await admin.call(AlterUserScramCredentialsRequest(upsertions=[new]), 0)
        for password, is_valid in (("passw0rd", True), ("another", False)):
            client = ScramClient.of_password(mechanism, "bob", password, f"{random.Random(password).getrandbits(64)}")
            async with connected(rig) as old:
                await old.exchange(encode_request(SaslHandshakeRequest(mechanism.name), 0, 1, "old"))
                first = client.first()
                reply = await old.exchange(struct.pack(">i", len(first)) + first)
                final = client.next(reply[4:])
                assert final is not None
                reply = await old.exchange(struct.pack(">i", len(final)) + final)
                assert (reply[4:6] == b"v=") is is_valid
                if is_valid:
                    assert client.next(reply[4:]) is None
                    assert await old.exchange(METADATA)


async def test_session_of_a_login_without_headers_expires_and_can_be_renewed(tmp_path: Path) -> None:
    """Apache Kafka limits it like others: a client cannot avoid the end of its session by an old version."""
    async with running(tmp_path, connections_max_reauth_ms=3_600_000) as rig:
        async with connected(rig) as old:
            assert await old.exchange(HANDSHAKE) == ACCEPTED
            assert await old.exchange(PASSWORD) == EMPTY
            session = session_of(rig)
            assert session.login.expires_ms is not None
            session.login.expires_ms = 0
            assert await old.exchange(HANDSHAKE) == ACCEPTED
            assert await old.exchange(PASSWORD) == EMPTY
            assert await old.exchange(METADATA)
            session.login.expires_ms = 0
            assert await old.exchange(METADATA) == b""
        assert (rig.counts.successful_repeated, rig.counts.expired) == (1, 1)
