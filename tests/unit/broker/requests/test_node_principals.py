"""Sessions of nodes by their principals: which nodes they may act as, and which sessions are clients."""

from typing import Any

import pytest

from odradek.broker.quorum.peers import is_broker
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.listener import ALL_ROLES, CLIENT, LOGIN, UNAUTHENTICATED, Listener
from odradek.broker.requests.node_principals import NodePrincipals
from odradek.broker.requests.session import Session
from odradek.broker.security.authorizer import AllowAll
from odradek.cluster.authorization.standard import StandardAuthorizer
from odradek.cluster.authorizer import ANONYMOUS, CLUSTER_NODE, CLUSTER_RESOURCE, AclOperation, Principal, ResourceType
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import MetadataImage
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.sasl.mechanism import Identity
from odradek.protocol.security_protocol import SecurityProtocol

ONE, TWO, ALICE = (Principal("User", name) for name in ("kafka-1", "kafka-2", "alice"))
SUPER = (str(ONE), str(TWO))
_CLUSTER = (ResourceType.CLUSTER, CLUSTER_RESOURCE)


def principals(
    ids: dict[Principal, frozenset[int]] | None = None, own: Principal | None = None, authorizer: Any = None
) -> NodePrincipals:
    return NodePrincipals(ids or {}, own, authorizer or AllowAll(), alone=True)


def session_of(nodes: NodePrincipals, principal: Principal, *, by_token: bool = False) -> Session:
    """Return the session of a client that has logged in by SASL on a listener for clients and nodes."""
    protocol = SecurityProtocol.SASL_SSL
    listener = Listener("L", "h", 1, "h", 1, authenticates=True, security_protocol=protocol, nodes=nodes)
    session = Session(1, listener, "10.0.0.1", 2)
    session.login.identity = Identity(principal.name, by_token=by_token)
    session.log_in(principal, by_token=by_token)
    return session


def acts_as(session: Session, node_id: int, authorizer: Any = None) -> bool:
    context = RequestContext(0, 0, 0, None, session, authorizer or AllowAll(), 0, 0)
    try:
        context.require_node(node_id)
    except Refusal as refusal:
        return refusal.error is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return True


def test_mapped_principal_acts_as_its_node_alone() -> None:
    session = session_of(principals({ONE: frozenset({1}), TWO: frozenset({2})}), ONE)
    assert session.roles == (*ALL_ROLES, LOGIN)
    assert [acts_as(session, node_id) for node_id in (1, 2, 1, 3)] == [True, False, True, False]
    assert is_broker(session, None)


@pytest.mark.parametrize("authorizer", [AllowAll(), StandardAuthorizer((str(ALICE),), allow_if_no_acl=True)])
def test_principal_outside_the_mapping_is_a_client_also_with_all_permissions(authorizer: Any) -> None:
    session = session_of(principals({ONE: frozenset({1})}, ALICE, authorizer), ALICE)
    assert session.roles == (CLIENT, LOGIN)
    assert not session.authenticated
    assert not is_broker(session, "broker-1-raft")


@pytest.mark.parametrize(("alone", "further"), [(True, ()), (False, (UNAUTHENTICATED,))])
def test_node_with_a_certificate_can_log_in_by_the_secret_only_in_a_rolling_change(
    alone: bool, further: tuple[str, ...]
) -> None:
    nodes = NodePrincipals({ONE: frozenset({1})}, None, AllowAll(), alone)
    protocol = SecurityProtocol.SSL
    listener = Listener("L", "h", 1, "h", 1, authenticates=True, security_protocol=protocol, nodes=nodes)
    session = Session(1, listener, "10.0.0.1", 2)
    session.log_in(ONE)
    assert session.roles == (*ALL_ROLES, *further)
    session.log_in(CLUSTER_NODE, node_id=1)
    assert (session.roles, acts_as(session, 1), acts_as(session, 2)) == (ALL_ROLES, True, False)


def test_mapped_principal_needs_cluster_action() -> None:
    session = session_of(principals({ONE: frozenset({1})}), ONE)
    assert not acts_as(session, 1, StandardAuthorizer((), allow_if_no_acl=False))


def test_principal_of_several_nodes_is_bound_by_the_first_request_that_names_one() -> None:
    session = session_of(principals({ONE: frozenset({1, 2})}), ONE)
    assert [acts_as(session, node_id) for node_id in (3, 2, 1, 2)] == [False, True, False, True]


def test_without_a_mapping_the_first_named_node_binds_the_connection() -> None:
    nodes = principals(own=ONE)
    session, other = session_of(nodes, ONE), session_of(nodes, ONE)
    assert [acts_as(session, node_id) for node_id in (2, 1, 2)] == [True, False, True]
    assert acts_as(other, 1)


def test_without_mapping_and_authorizer_the_principal_of_this_node_alone_is_a_node() -> None:
    assert session_of(principals(own=ONE), ONE).authenticated
    assert not session_of(principals(own=ONE), ALICE).authenticated
    assert not session_of(principals(), ALICE).authenticated


def test_without_a_mapping_super_users_are_nodes_and_the_absence_of_acls_makes_no_node() -> None:
    authorizer = StandardAuthorizer(SUPER, allow_if_no_acl=True)
    nodes = principals(authorizer=authorizer)
    assert session_of(nodes, ONE).authenticated
    assert not session_of(nodes, ALICE).authenticated
    authorizer.on_metadata(MetadataDelta(MetadataImage()), MetadataImage())
    assert authorizer.decide(ALICE, "10.0.0.1", AclOperation.CLUSTER_ACTION, *_CLUSTER).allowed
    assert not session_of(nodes, ALICE).authenticated


def test_principal_that_clients_share_is_a_broker_only_with_the_client_id_of_one() -> None:
    session = session_of(principals(own=ONE), ONE)
    assert is_broker(session, "broker-2-raft")
    assert not is_broker(session, "admin")


def test_anonymous_client_and_client_with_a_token_are_no_nodes() -> None:
    authorizer = StandardAuthorizer((str(ANONYMOUS), str(ONE)), allow_if_no_acl=False)
    assert not session_of(principals(own=ANONYMOUS, authorizer=authorizer), ANONYMOUS).authenticated
    assert not session_of(principals({ONE: frozenset({1})}), ONE, by_token=True).authenticated


def test_node_that_logs_in_again_with_a_token_is_no_node_any_more() -> None:
    session = session_of(principals({ONE: frozenset({1})}), ONE)
    session.log_in(ONE, by_token=True)
    assert session.roles == (CLIENT, LOGIN)


def test_repeated_login_keeps_the_node_of_the_connection() -> None:
    session = session_of(principals(own=ONE), ONE)
    assert acts_as(session, 2)
    session.log_in(ONE)
    assert not acts_as(session, 1)
