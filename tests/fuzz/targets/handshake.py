"""Fuzz target of the SCRAM exchange. The parts of an input are two messages of the client and two of the server."""

from __future__ import annotations

from odradek.protocol.sasl.mechanism import AuthenticationFailed, Identity
from odradek.protocol.sasl.scram import ITERATIONS_MIN, SCRAM_SHA_256, Credential, Decoys
from odradek.protocol.sasl.scram_client import ScramClient
from odradek.protocol.sasl.scram_server import Account, ScramServer
from tests.fuzz.parts import joined, mutate, split
from tests.fuzz.target import Target

USER, PASSWORD, SALT = "broker", "secret of the cluster", b"0123456789abcdef"
CLIENT_NONCE, SERVER_NONCE = "client-nonce", "server-nonce"
CREDENTIAL = Credential.of_password(SCRAM_SHA_256, PASSWORD.encode(), SALT, ITERATIONS_MIN)
MESSAGES = 4


def server() -> ScramServer:
    account = Account(CREDENTIAL, Identity(USER))
    decoys = Decoys(b"key of the decoys")
    return ScramServer(SCRAM_SHA_256, lambda first: account if first.user == USER else None, decoys, SERVER_NONCE)


def client() -> ScramClient:
    return ScramClient.of_password(SCRAM_SHA_256, USER, PASSWORD, CLIENT_NONCE)


def run(data: bytes) -> int:
    """Pass the messages to a server and to a client. No message but the exact proof may authenticate."""
    first, final, server_first, server_final = [*split(data)[:MESSAGES], b"", b"", b"", b""][:MESSAGES]
    exchange = server()
    try:
        exchange.next(first)
        reply = exchange.next(final)
    except AuthenticationFailed:
        pass
    else:
        assert reply.identity == Identity(USER)
    one = client()
    one.first()
    try:
        one.next(server_first)
        one.next(server_final)
    except AuthenticationFailed:
        pass
    return 0


def seeds() -> list[bytes]:
    one, exchange = client(), server()
    first = one.first()
    challenge = exchange.next(first).message
    final = one.next(challenge)
    assert final is not None
    return [joined((first, final, challenge, exchange.next(final).message))]


SCRAM = Target("scram", run, seeds, mutate=mutate)
