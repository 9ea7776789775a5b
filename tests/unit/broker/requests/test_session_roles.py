"""Roles in which a listener serves a connection: before a login, after that of a user, and after that of a node."""

import pytest

from odradek.broker.requests.listener import ALL_ROLES, BROKER, CLIENT, CONTROLLER, LOGIN, UNAUTHENTICATED, Listener
from odradek.broker.requests.session import Session
from odradek.cluster.authorizer import CLUSTER_NODE, Principal
from odradek.protocol.sasl.mechanism import Identity
from odradek.protocol.security_protocol import SecurityProtocol

PLAINTEXT, SASL = SecurityProtocol.PLAINTEXT, SecurityProtocol.SASL_SSL


@pytest.mark.parametrize(
    ("protocol", "roles", "of_open", "of_user"),
    [
        (SASL, ALL_ROLES, (LOGIN,), (CLIENT, LOGIN)),
        (SASL, (CLIENT,), (LOGIN,), (CLIENT, LOGIN)),
        (SASL, (BROKER,), (LOGIN,), (LOGIN,)),
        (SASL, (CONTROLLER,), (LOGIN,), (LOGIN,)),
        (PLAINTEXT, ALL_ROLES, (CLIENT, UNAUTHENTICATED), None),
    ],
)
def test_login_of_a_user_gives_the_role_of_a_client_alone_and_that_of_a_node_gives_all_roles(
    protocol: SecurityProtocol, roles: tuple[str, ...], of_open: tuple[str, ...], of_user: tuple[str, ...] | None
) -> None:
    listener = Listener("L", "host", 1, "host", 1, roles, authenticates=True, security_protocol=protocol)
    session = Session(1, listener, "10.0.0.1", 2)
    assert session.roles == of_open
    assert session.awaits_login is (protocol is SASL)
    if of_user is not None:
        session.login.identity = Identity("alice")
        session.log_in(Principal("User", "alice"), node_id=None)
        assert (session.roles, session.awaits_login) == (of_user, False)
    session.log_in(CLUSTER_NODE, node_id=0)
    assert (session.roles, session.authenticated) == (roles, True)
