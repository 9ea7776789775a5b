"""Logins between nodes of a cluster: a login counts only at the node that it names."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl_handshake import SaslHandshakeResponse
from odradek.protocol.sasl.cluster_secret import FAILED_MESSAGE, AnotherNode, Login, failed_response, parse_secret
from odradek.protocol.sasl.scram import MECHANISM, AuthenticationFailed

if TYPE_CHECKING:
    from odradek.protocol.sasl.cluster_secret import ClusterSecret, Exchange

HANDSHAKE = SaslHandshakeResponse(0, [MECHANISM])
NODE_ID_MAX = 2**31 - 1


def secret(content: bytes = b"x" * 32, seed: int = 5) -> ClusterSecret:
    return parse_secret(content, "secret", random.Random(seed).getrandbits)


def relay(login: Login, exchange: Exchange, old: bytes = b"", new: bytes = b"") -> bool:
    """Pass the messages of a login to a server, with `old` replaced in the first one. Return True if it succeeds."""
    first = login.received(HANDSHAKE)
    assert first is not None
    response, _ = exchange.received(bytes(first.auth_bytes).replace(old, new) if old else bytes(first.auth_bytes))
    final = login.received(response)
    assert final is not None
    response, authenticated = exchange.received(bytes(final.auth_bytes))
    assert login.received(response) is None
    return authenticated


@pytest.mark.parametrize("node_id", [0, 2, NODE_ID_MAX])
def test_login_at_the_named_node_succeeds(node_id: int) -> None:
    assert relay(secret(seed=1).login(node_id), secret(seed=2).exchange(node_id))


@pytest.mark.parametrize(("named", "receiver"), [(2, 3), (2, 1), (2, 22), (22, 2), (2, 0)])
def test_login_that_a_process_relays_to_another_node_is_refused(named: int, receiver: int) -> None:
    """A process at the address of a failed node holds no secret: it passes messages to another node, or back."""
    with pytest.raises(AnotherNode, match=f"this is node {receiver}, the login has 't={named}'"):
        relay(secret(seed=1).login(named), secret(seed=2).exchange(receiver))


def test_login_whose_named_node_was_changed_on_the_path_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match="the password differs"):
        relay(secret(seed=1).login(2), secret(seed=2).exchange(3), b",t=2", b",t=3")


@pytest.mark.parametrize("extensions", ["", "t=", "t=03", "t=-3", "t=3,t=3", "t=2,t=3", "x=1,t=3", "t=3,x=1", "3"])
def test_login_without_exactly_one_name_of_the_node_is_refused(extensions: str) -> None:
    message = f"n,,n=cluster,r=abc,{extensions}".removesuffix(",").encode()
    with pytest.raises(AnotherNode, match=r"this is node 3, .* controller\.quorum\.voters"):
        secret().exchange(3).received(message)


def test_proof_after_the_refusal_of_the_first_message_is_refused() -> None:
    login, exchange, same_nonce = secret(seed=1).login(2), secret(seed=2).exchange(3), secret(seed=2).exchange(2)
    first = login.received(HANDSHAKE)
    assert first is not None
    with pytest.raises(AnotherNode):
        exchange.received(bytes(first.auth_bytes))
    response, _ = same_nonce.received(bytes(first.auth_bytes))
    final = login.received(response)
    assert final is not None
    with pytest.raises(AnotherNode):
        exchange.received(bytes(final.auth_bytes))
    assert same_nonce.received(bytes(final.auth_bytes))[1]


def test_response_to_a_failed_login_names_another_node_but_not_the_failed_check_of_the_credential() -> None:
    with pytest.raises(AnotherNode) as failed:
        secret().exchange(3).received(b"n,,n=cluster,r=abc,t=" + b"2" * 100)
    response = failed_response(failed.value)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message is not None
    assert "this is node 3" in response.error_message
    assert "2" * 50 not in response.error_message
    assert failed_response(AuthenticationFailed("the nonce differs")).error_message == FAILED_MESSAGE
