"""Logins by SaslHandshake v0: the bytes that Apache Kafka's broker and this broker send are equal."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.kafka_broker import KafkaBroker
from tests.support.raw_client import encode_request
from tests.support.single_broker import SingleBroker
from tests.unit.broker.test_sasl_handshake_v0 import ACCEPTED, EMPTY, HANDSHAKE, METADATA, PASSWORD, WRONG_PASSWORD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.full, pytest.mark.timeout(300)]
LISTENERS: Final = {"CLIENTS": "SASL_PLAINTEXT", "SHORT": "SASL_PLAINTEXT"}
JAAS: Final = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="s3cret" user_bob="b0b";'
SETTINGS: Final = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": JAAS,
    "listener.name.short.plain.sasl.jaas.config": JAAS,
    "listener.name.clients.plain.connections.max.reauth.ms": "3600000",
    "listener.name.short.plain.connections.max.reauth.ms": "1",
}
PASSWORD_OF_BOB: Final = struct.pack(">i", 8) + b"\0bob\0b0b"
RESPONSE_S: Final = 60
CASES: Final = {
    "valid password": (HANDSHAKE, PASSWORD, METADATA),
    "repeated login": (HANDSHAKE, PASSWORD, HANDSHAKE, PASSWORD, METADATA),
    "repeated login of another user": (HANDSHAKE, PASSWORD, HANDSHAKE, PASSWORD_OF_BOB),
    "wrong password": (HANDSHAKE, WRONG_PASSWORD),
    "no bytes": (HANDSHAKE, EMPTY),
    "request in place of a message": (HANDSHAKE, METADATA),
    "second handshake": (HANDSHAKE, HANDSHAKE),
    "message above the limit": (HANDSHAKE, struct.pack(">i", 524_289)),
    "negative size": (HANDSHAKE, struct.pack(">i", -1)),
    "mechanism that is not supported": (encode_request(SaslHandshakeRequest("GSSAPI"), 0, 9, "old"),),
}


class Pair:
    """The addresses of a listener of both brokers, by broker."""

    def __init__(self, odradek: SingleBroker, kafka: KafkaBroker) -> None:
        self._odradek = odradek
        self._kafka = kafka

    def ports(self, listener: str) -> dict[str, int]:
        return {
            "odradek": int(self._odradek.addresses[listener].rpartition(":")[2]),
            "kafka": self._kafka.ports[listener],
        }


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory: Path = tmp_path_factory.mktemp("handshake")
    with ExitStack() as undo:
        odradek = undo.enter_context(SingleBroker(directory / "odradek", LISTENERS, SETTINGS))
        kafka = undo.enter_context(KafkaBroker(directory / "kafka", overrides=SETTINGS, listeners=LISTENERS))
        yield Pair(odradek, kafka)


def received(connection: socket.socket) -> bytes:
    """Return the next frame with its size. Return no bytes if the broker has closed the connection."""
    frame, size = b"", 4
    try:
        while len(frame) < size:
            data = connection.recv(size - len(frame))
            if not data:
                return b""
            frame += data
            if len(frame) == 4:
                size += struct.unpack(">i", frame)[0]
    except ConnectionError:
        return b""
    return frame


def responses(port: int, frames: tuple[bytes, ...]) -> list[bytes]:
    """Return the response to each frame. The response to METADATA is its correlation id alone."""
    found = []
    with socket.create_connection(("127.0.0.1", port), RESPONSE_S) as connection:
        for frame in frames:
            connection.sendall(frame)
            response = received(connection)
            found.append(response[4:8] if frame == METADATA else response)
    return found


@pytest.mark.parametrize("case", CASES)
def test_both_brokers_respond_with_the_same_bytes(both: Pair, case: str) -> None:
    found = {broker: responses(port, CASES[case]) for broker, port in both.ports("CLIENTS").items()}
    assert found["odradek"] == found["kafka"]
    if case == "repeated login":
        assert found["kafka"] == [ACCEPTED, EMPTY, ACCEPTED, EMPTY, METADATA[8:12]]


def test_session_of_both_brokers_expires(both: Pair) -> None:
    for port in both.ports("SHORT").values():
        with socket.create_connection(("127.0.0.1", port), RESPONSE_S) as connection:
            connection.sendall(HANDSHAKE)
            assert received(connection) == ACCEPTED
            connection.sendall(PASSWORD)
            assert received(connection) == EMPTY
            try:
                for _ in range(10_000):  # requests are served until the session expires after a millisecond
                    connection.sendall(METADATA)
                    if not received(connection):
                        break
                else:
                    pytest.fail("the session did not expire")
            except ConnectionError:
                pass  # the broker closed the connection between the two steps
