"""OAUTHBEARER: the messages of both sides. tests/unit/broker/security/test_token_validator.py has the tokens."""

import pytest

from odradek.protocol.sasl.mechanism import AuthenticationFailed, Identity, Reply
from odradek.protocol.sasl.oauthbearer import (
    ACKNOWLEDGMENT,
    TOKEN_BYTES_MAX,
    InvalidToken,
    OAuthBearerClient,
    OAuthBearerServer,
)

TOKEN = "aGVhZGVy.Y2xhaW1z.c2lnbmF0dXJl"
ERROR = b'{"status":"invalid_token"}'


def server() -> OAuthBearerServer:
    def validate(token: str) -> Identity:
        if token != TOKEN:
            raise InvalidToken("its signature is not valid")
        return Identity("alice", expires_ms=1_000)

    return OAuthBearerServer(validate)


def test_client_logs_in_with_its_token() -> None:
    client = OAuthBearerClient(TOKEN, {"logicalCluster": "lkc-1", "pool": "a b"})
    assert client.first() == f"n,,\1auth=Bearer {TOKEN}\1logicalCluster=lkc-1\1pool=a b\1\1".encode()
    reply = server().next(client.first())
    assert reply == Reply(b"", Identity("alice", expires_ms=1_000))
    assert client.next(reply.message) is None


def test_client_acknowledges_the_error_of_an_invalid_token_and_the_exchange_fails() -> None:
    client, exchange = OAuthBearerClient("a.b.c"), server()
    reply = exchange.next(client.first())
    assert reply == Reply(ERROR)
    assert client.next(reply.message) == ACKNOWLEDGMENT
    with pytest.raises(AuthenticationFailed, match="its signature is not valid") as failed:
        exchange.next(ACKNOWLEDGMENT)
    assert failed.value.public == ERROR.decode()
    with pytest.raises(AuthenticationFailed, match=r"the server refused the token: .*invalid_token"):
        client.next(b"")


def test_second_token_after_an_error_is_refused() -> None:
    exchange = server()
    exchange.next(OAuthBearerClient("a.b.c").first())
    with pytest.raises(AuthenticationFailed, match="the token is not valid"):
        exchange.next(OAuthBearerClient(TOKEN).first())


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "first message"),
        (ACKNOWLEDGMENT, "first message"),
        (b"n,,\1auth=Bearer x\1", "first message"),
        (b"p,,\1auth=Bearer x\1\1", "first message"),
        (b"n,b=x,\1auth=Bearer x\1\1", "first message"),
        (b"n,a=x=y,\1auth=Bearer x\1\1", "first message"),
        (b"n,,\1a1=x\1auth=Bearer x\1\1", "first message"),
        (b"n,,\1host=x\1\1", "'auth' not specified"),
        (b"n,,\1\1", "'auth' not specified"),
        (b"n,,\1auth=Bearer\1\1", "invalid 'auth' format"),
        (b"n,,\1auth=Bearer a/b\1\1", "invalid 'auth' format"),
        (b"n,,\1auth=Basic x\1\1", "Invalid scheme"),
        (b"n,,\1auth=Bearer \xff\1\1", "first message"),
        (b"n,,\1auth=Bearer " + b"x" * TOKEN_BYTES_MAX + b"\1\1", "more than 65536"),
    ],
)
def test_server_refuses_first_messages(message: bytes, reason: str) -> None:
    with pytest.raises(AuthenticationFailed, match=reason):
        server().next(message)


@pytest.mark.parametrize(("authorization", "accepted"), [("alice", True), ("bob", False), ("=3D=2C", False)])
def test_authorization_id_must_be_the_principal_of_the_token(authorization: str, accepted: bool) -> None:
    message = f"n,a={authorization},\1auth=bearer  {TOKEN}\1\1".encode()
    if accepted:
        assert server().next(message).identity is not None
        return
    with pytest.raises(AuthenticationFailed, match="authorization id") as failed:
        server().next(message)
    assert failed.value.public is not None


@pytest.mark.parametrize("pair", [("auth", "x"), ("", "x"), ("a1", "x"), ("a", ""), ("a", "\1"), ("a", "é")])
def test_client_refuses_an_invalid_extension(pair: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="is not valid"):
        OAuthBearerClient(TOKEN, dict([pair]))
