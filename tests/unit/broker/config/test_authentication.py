"""Modes of authentication between nodes: consistency with the secret, warnings, and which clients count as brokers."""

import pytest

from odradek.broker.config.addresses import has_other_voters, parse_listeners
from odradek.broker.config.authentication import logs_in, require_consistent, serves_all_nodes, warning
from odradek.broker.config.property import ConfigError
from odradek.broker.quorum.peers import is_broker
from odradek.broker.requests.listener import ALL_ROLES, BROKER, CLIENT, CONTROLLER, Listener
from odradek.broker.requests.node_principals import SessionNode
from odradek.broker.requests.session import Session
from tests.support.broker_context import config

MODE = "odradek.inter.broker.authentication"
BROKER_NAME = "broker-2-raft"


@pytest.mark.parametrize(
    ("mode", "has_secret", "has_other_nodes", "refusal"),
    [
        ("required", True, True, None),
        ("required", False, False, None),
        ("required", False, True, "rand -base64 32. Or set odradek.inter.broker.authentication=none"),
        ("none", False, True, None),
        ("none", True, True, "none, but cluster.secret.file is set"),
        ("accept", True, True, None),
        ("accept", False, False, "accept needs cluster.secret.file"),
        ("login", False, True, "login needs cluster.secret.file"),
        ("move", False, True, "move needs cluster.secret.file"),
    ],
)
def test_mode_must_match_the_secret(mode: str, has_secret: bool, has_other_nodes: bool, refusal: str | None) -> None:
    settings = config(f"{MODE}={mode}")
    if refusal is None:
        require_consistent(settings, has_secret=has_secret, has_other_nodes=has_other_nodes)
        return
    with pytest.raises(ConfigError, match=refusal):
        require_consistent(settings, has_secret=has_secret, has_other_nodes=has_other_nodes)


@pytest.mark.parametrize(
    ("mode", "has_secret", "expected"),
    [
        ("required", True, None),
        ("move", True, None),
        ("none", False, "brokers do not authenticate to each other"),
        ("accept", True, "brokers are served without authentication"),
        ("login", True, "brokers are served without authentication"),
    ],
)
def test_warning_if_a_process_without_the_secret_can_act_as_a_broker(
    mode: str, has_secret: bool, expected: str | None
) -> None:
    found = warning(config(f"{MODE}={mode}"), has_secret=has_secret, has_other_nodes=True)
    assert (found[0] if found else None) == expected
    assert warning(config(), has_secret=False, has_other_nodes=False) is None


def test_phases_of_a_rolling_change_serve_all_nodes_on_each_listener() -> None:
    listeners = ("listeners=INTERNAL://:1,CLIENTS://:2", "inter.broker.listener.name=INTERNAL")
    for mode, (serves_all, login) in {
        "required": (False, True),
        "move": (False, True),
        "login": (True, True),
        "accept": (True, False),
        "none": (False, False),
    }.items():
        settings = config(*listeners, f"{MODE}={mode}")
        assert (serves_all_nodes(settings), logs_in(settings)) == (serves_all, login)
        roles = {listener.name: listener.roles for listener in parse_listeners(settings)}
        assert roles == {"INTERNAL": ALL_ROLES, "CLIENTS": ALL_ROLES if serves_all or mode == "move" else (CLIENT,)}


def test_phases_keep_the_listeners_for_controllers_separate() -> None:
    settings = config(
        "listeners=INTERNAL://:1,CLIENTS://:2,CONTROLLERS://:3",
        "inter.broker.listener.name=INTERNAL",
        "controller.listener.names=CONTROLLERS",
        f"{MODE}=accept",
    )
    roles = {listener.name: listener.roles for listener in parse_listeners(settings)}
    assert roles == {"INTERNAL": (CLIENT, BROKER), "CLIENTS": (CLIENT, BROKER), "CONTROLLERS": (CONTROLLER,)}


@pytest.mark.parametrize(("voters", "others"), [("", False), ("1@a:1", False), ("2@a:1", True), ("1@a:1,2@b:1", True)])
def test_other_voters_are_other_nodes(voters: str, others: bool) -> None:
    assert has_other_voters(config("node.id=1", f"controller.quorum.voters={voters}")) is others


@pytest.mark.parametrize(
    ("authenticates", "serves_all", "authenticated", "client_id", "expected"),
    [
        (True, False, False, BROKER_NAME, False),
        (True, False, True, BROKER_NAME, True),
        (True, False, True, "any", True),
        (True, True, False, BROKER_NAME, True),
        (True, True, False, "client", False),
        (True, True, True, "any", True),
        (False, False, False, BROKER_NAME, True),
        (False, False, False, "client", False),
        (False, False, False, None, False),
    ],
)
def test_client_id_is_evidence_for_a_broker_only_where_nodes_need_no_authentication(
    authenticates: bool, serves_all: bool, authenticated: bool, client_id: str | None, expected: bool
) -> None:
    listener = Listener("L", "", 1, "h", 1, ALL_ROLES, False, authenticates, serves_all)
    session = Session(1, listener, "h", 2, node=SessionNode.of(frozenset((7,))) if authenticated else None)
    assert is_broker(session, client_id) is expected
