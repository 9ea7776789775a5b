"""Fuzz target of the SCRAM exchange. The parts of an input are two messages of the client and two of the server."""

from __future__ import annotations

from odradek.protocol.sasl.scram import ITERATIONS_MIN, AuthenticationFailed, Credential, ScramClient, ScramServer
from tests.fuzz.parts import joined, mutate, split
from tests.fuzz.target import Target

USER, PASSWORD, SALT = "broker", b"secret of the cluster", b"0123456789abcdef"
CLIENT_NONCE, SERVER_NONCE = "client-nonce", "server-nonce"
CREDENTIAL = Credential.of_password(PASSWORD, SALT, ITERATIONS_MIN)
MESSAGES = 4


def server() -> ScramServer:
    return ScramServer(lambda user: CREDENTIAL if user == USER else None, SERVER_NONCE)


def run(data: bytes) -> int:
    """Pass the messages to a server and to a client. No message but the exact proof may authenticate."""
    first, final, server_first, server_final = [*split(data)[:MESSAGES], b"", b"", b"", b""][:MESSAGES]
    exchange = server()
    try:
        exchange.first(first)
        exchange.final(final)
    except AuthenticationFailed:
        pass
    else:
        assert exchange.user == USER
    client = ScramClient(USER, PASSWORD, CLIENT_NONCE)
    client.first()
    try:
        client.final(server_first)
        client.verify(server_final)
    except AuthenticationFailed:
        pass
    return 0


def seeds() -> list[bytes]:
    client, exchange = ScramClient(USER, PASSWORD, CLIENT_NONCE), server()
    first = client.first()
    challenge = exchange.first(first)
    final = client.final(challenge)
    return [joined((first, final, challenge, exchange.final(final)))]


SCRAM = Target("scram", run, seeds, mutate=mutate)
