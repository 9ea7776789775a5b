"""Logins between nodes of a cluster: a login counts only at the node that it names."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake import SaslHandshakeResponse
from odradek.protocol.sasl.cluster_secret import MECHANISM, USER, AnotherNode, is_node_login, parse_secret
from odradek.protocol.sasl.mechanism import AuthenticationFailed
from odradek.protocol.sasl.scram_server import parse_client_first

if TYPE_CHECKING:
    from odradek.protocol.sasl.cluster_secret import ClusterSecret
    from odradek.protocol.sasl.login import Login
    from odradek.protocol.sasl.scram_server import ScramServer

HANDSHAKE = SaslHandshakeResponse(0, [MECHANISM.name])
NODE_ID_MAX = 2**31 - 1
SOURCE = 4
"""Id of the node that logs in."""


def secret(content: bytes = b"x" * 32, seed: int = 5) -> ClusterSecret:
    return parse_secret(content, "secret", random.Random(seed).getrandbits)


def relay(login: Login, exchange: ScramServer, old: bytes = b"", new: bytes = b"") -> bool:
    """Pass the messages of a login to a server, with `old` replaced in the first one. Return True if it succeeds."""
    first = login.received(HANDSHAKE)
    assert first is not None
    reply = exchange.next(bytes(first.auth_bytes).replace(old, new) if old else bytes(first.auth_bytes))
    assert reply.identity is None
    final = login.received(SaslAuthenticateResponse(auth_bytes=reply.message))
    assert final is not None
    reply = exchange.next(bytes(final.auth_bytes))
    assert login.received(SaslAuthenticateResponse(auth_bytes=reply.message)) is None
    return reply.identity is not None and (reply.identity.user, reply.identity.node_id) == (USER, SOURCE)


@pytest.mark.parametrize("node_id", [0, 2, NODE_ID_MAX])
def test_login_at_the_named_node_succeeds(node_id: int) -> None:
    assert relay(secret(seed=1).login(SOURCE, node_id), secret(seed=2).server(node_id))


@pytest.mark.parametrize(("named", "receiver"), [(2, 3), (2, 1), (2, 22), (22, 2), (2, 0)])
def test_login_that_a_process_relays_to_another_node_is_refused(named: int, receiver: int) -> None:
    """A process at the address of a failed node holds no secret: it passes messages to another node, or back."""
    with pytest.raises(AnotherNode, match=f"this is node {receiver}, the login has 't={named},s={SOURCE}'"):
        relay(secret(seed=1).login(SOURCE, named), secret(seed=2).server(receiver))


@pytest.mark.parametrize(("sent", "received"), [(b",t=2", b",t=3"), (b",s=4", b",s=5")])
def test_login_whose_named_nodes_were_changed_on_the_path_is_refused(sent: bytes, received: bytes) -> None:
    receiver = 3 if sent == b",t=2" else 2
    with pytest.raises(AuthenticationFailed, match="the password differs"):
        relay(secret(seed=1).login(SOURCE, 2), secret(seed=2).server(receiver), sent, received)


@pytest.mark.parametrize(
    "extensions",
    [
        *("", "t=3", "s=4", "t=,s=4", "t=03,s=4", "t=-3,s=4", "t=3,s=", "t=3,s=04", "t=3,s=-4", "t=3,s=99999999999"),
        *("s=4,t=3", "t=3,t=3,s=4", "t=2,t=3,s=4", "t=3,s=4,s=5", "x=1,t=3,s=4", "t=3,s=4,x=1", "t=3,x=1", "3"),
    ],
)
def test_login_without_exactly_one_name_of_the_node_is_refused(extensions: str) -> None:
    message = f"n,,n=cluster,r=abc,{extensions}".removesuffix(",").encode()
    with pytest.raises(AnotherNode, match=r"this is node 3, .* controller\.quorum\.voters"):
        secret().server(3).next(message)


def test_proof_after_the_refusal_of_the_first_message_is_refused() -> None:
    login, exchange, same_nonce = secret(seed=1).login(SOURCE, 2), secret(seed=2).server(3), secret(seed=2).server(2)
    first = login.received(HANDSHAKE)
    assert first is not None
    with pytest.raises(AnotherNode):
        exchange.next(bytes(first.auth_bytes))
    challenge = same_nonce.next(bytes(first.auth_bytes))
    final = login.received(SaslAuthenticateResponse(auth_bytes=challenge.message))
    assert final is not None
    with pytest.raises(AuthenticationFailed, match="the exchange has ended"):
        exchange.next(bytes(final.auth_bytes))
    assert same_nonce.next(bytes(final.auth_bytes)).identity is not None


def test_refusal_of_another_node_is_public_and_short() -> None:
    with pytest.raises(AnotherNode) as failed:
        secret().server(3).next(b"n,,n=cluster,r=abc,t=" + b"2" * 100)
    assert failed.value.public is not None
    assert "this is node 3" in failed.value.public
    assert "2" * 50 not in failed.value.public


def test_reason_of_a_failed_check_of_the_credential_is_not_public() -> None:
    login, server = secret(b"y" * 32).login(SOURCE, 2), secret().server(2)
    with pytest.raises(AuthenticationFailed, match="the password differs") as failed:
        relay(login, server)
    assert failed.value.public is None


@pytest.mark.parametrize(("extensions", "expected"), [("", False), (",tokenauth=true", False), (",t=3", True)])
def test_first_message_with_a_target_is_the_login_of_a_node(extensions: str, expected: bool) -> None:
    assert is_node_login(parse_client_first(f"n,,n=cluster,r=abc{extensions}".encode())) is expected


def test_salted_password_of_a_node_is_computed_once_per_process() -> None:
    """The event loop of a broker must not compute it for each connection to another node."""
    one, other = secret(b"z" * 32), secret(b"z" * 32, seed=6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hashlib.pbkdf2_hmac", None)
        assert relay(one.login(SOURCE, 2), other.server(2))
