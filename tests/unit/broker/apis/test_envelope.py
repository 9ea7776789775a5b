"""Envelope: the principal with which the controller authorizes the embedded request."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.apis import envelope
from odradek.broker.requests.listener import CLIENT, CONTROLLER
from odradek.broker.requests.node_principals import SessionNode
from odradek.broker.requests.session import Session
from odradek.cluster.authorizer import ANONYMOUS, CLUSTER_NODE, AclOperation, Principal
from odradek.protocol.codec import encode, request_header_version
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.create_topics import CreateTopicsRequest
from odradek.protocol.messages.envelope import EnvelopeRequest
from odradek.protocol.messages.headers import RequestHeader
from tests.support.broker_context import LISTENER, Deny, context, image, services_of

ADMIN = Principal("User", "admin")


def embedded_principal(own: Principal, carried: bytes, **options: Any) -> Principal:
    session = embedded_session(own, carried, **options)
    assert not session.authenticated
    return session.principal


def embedded_session(own: Principal, carried: bytes, *, node: SessionNode | None = None, **options: Any) -> Session:
    request_context = context(0, image(), **options)
    services_of(request_context).controller = SimpleNamespace(is_active=True)
    request_context.session = Session(1, replace(LISTENER, roles=(CONTROLLER,)), "10.0.0.1", 5, own, node=node)
    data = encode(RequestHeader(19, 7, 0, "c"), request_header_version(19, 7)) + encode(CreateTopicsRequest(), 7)
    embedded = envelope.handle(request_context, EnvelopeRequest(data, carried, b"\x0a\x00\x00\x09"))
    assert embedded.session.client_host == "10.0.0.9"
    return embedded.session


@pytest.mark.parametrize(("carried", "is_node"), [(b"", True), (b"User:alice", False), (b"User:admin", False)])
def test_embedded_request_is_one_of_the_node_only_without_a_principal(carried: bytes, is_node: bool) -> None:
    session = embedded_session(ADMIN, carried, node=SessionNode.of(frozenset((4,))))
    assert (session.authenticated, session.roles) == (is_node, (CLIENT,))


@pytest.mark.parametrize(
    ("own", "carried", "expected"),
    [
        (CLUSTER_NODE, b"User:alice", Principal("User", "alice")),
        (CLUSTER_NODE, b"User:CN=a:b", Principal("User", "CN=a:b")),
        (CLUSTER_NODE, b"User:ANONYMOUS", ANONYMOUS),
        (CLUSTER_NODE, b"", CLUSTER_NODE),
        (CLUSTER_NODE, b"Node:cluster", CLUSTER_NODE),
        (ANONYMOUS, b"", ANONYMOUS),
        (ADMIN, b"", ADMIN),
        (ADMIN, b"User:alice", Principal("User", "alice")),
    ],
)
def test_embedded_request_has_the_principal_of_the_client_or_of_the_sender(
    own: Principal, carried: bytes, expected: Principal
) -> None:
    assert embedded_principal(own, carried) == expected


@pytest.mark.parametrize(
    ("own", "carried", "error"),
    [
        (ANONYMOUS, b"Node:cluster", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (ADMIN, b"Node:cluster", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (CLUSTER_NODE, b"alice", ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (CLUSTER_NODE, b"\xff", ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    ],
)
def test_malformed_principal_and_that_of_nodes_from_another_sender_are_refused(
    own: Principal, carried: bytes, error: ErrorCode
) -> None:
    with pytest.raises(Refusal) as refused:
        embedded_principal(own, carried)
    assert refused.value.error is error


def test_envelope_without_cluster_action_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        embedded_principal(ANONYMOUS, b"User:alice", authorizer=Deny((AclOperation.CLUSTER_ACTION, "kafka-cluster")))
    assert refused.value.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
