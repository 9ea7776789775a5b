"""PLAIN: Kafka's messages and error messages."""

import pytest

from odradek.protocol.sasl.mechanism import AuthenticationFailed, Identity, Reply
from odradek.protocol.sasl.plain import PlainClient, PlainServer

PASSWORDS = {"alice": "s,e=cret", "bob": "", "cæsar": "ünïcode"}
INVALID = "Authentication failed: Invalid username or password"


def server() -> PlainServer:
    return PlainServer(PASSWORDS.get)


@pytest.mark.parametrize("user", ["alice", "cæsar"])
def test_client_logs_in_with_its_password(user: str) -> None:
    client = PlainClient(user, PASSWORDS[user])
    assert client.first() == f"\0{user}\0{PASSWORDS[user]}".encode()
    reply = server().next(client.first())
    assert reply == Reply(b"", Identity(user))
    assert client.next(reply.message) is None


def test_authorization_id_of_the_user_is_accepted() -> None:
    assert server().next(b"alice\0alice\0s,e=cret").identity == Identity("alice")


@pytest.mark.parametrize(
    ("message", "public"),
    [
        (b"bob\0alice\0s,e=cret", "Authentication failed: Client requested an authorization id that is different from"),
        (b"bob\0alice\0wrong", INVALID),
        (b"\0alice\0wrong", INVALID),
        (b"\0nobody\0s,e=cret", INVALID),
        (b"\0bob\0x", INVALID),
        (b"\0\0s,e=cret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0bob\0", "Authentication failed: password not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0s,e=cret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0\xff", "Invalid SASL/PLAIN response: not UTF-8 text"),
    ],
)
def test_server_refuses_messages(message: bytes, public: str) -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        server().next(message)
    assert failed.value.public is not None
    assert failed.value.public.startswith(public)


def test_traceback_of_a_refusal_does_not_contain_the_message() -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        server().next(b"\0alice\0secret\xff")
    assert failed.value.__context__ is None
    assert failed.value.__cause__ is None


def test_client_refuses_a_message_of_the_server() -> None:
    with pytest.raises(AuthenticationFailed, match="PLAIN has none"):
        PlainClient("alice", "x").next(b"x")
