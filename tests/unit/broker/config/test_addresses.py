"""Parsing of listeners, of their roles, and of controller.quorum.voters."""

import pytest

from odradek.broker.config.addresses import (
    Voter,
    inter_broker_listener,
    parse_listeners,
    parse_metrics_listener,
    parse_voters,
)
from odradek.broker.config.property import ConfigError
from odradek.broker.requests.listener import BROKER
from tests.support.broker_context import config

ALL_ROLES = ("client", "broker", "controller")
TWO_LISTENERS = "listeners=A://:1,B://:2"


@pytest.mark.parametrize(
    ("settings", "roles"),
    [
        ([TWO_LISTENERS], {"A": ALL_ROLES, "B": ALL_ROLES}),
        ([TWO_LISTENERS, "inter.broker.listener.name=B"], {"A": ("client",), "B": ALL_ROLES}),
        ([TWO_LISTENERS, "controller.listener.names=B"], {"A": ("client", "broker"), "B": ("controller",)}),
        (
            ["listeners=A://:1,B://:2,C://:3", "inter.broker.listener.name=B", "controller.listener.names=C"],
            {"A": ("client",), "B": ("client", "broker"), "C": ("controller",)},
        ),
    ],
)
def test_roles_of_listeners_follow_the_names_in_the_configuration(
    settings: list[str], roles: dict[str, tuple[str, ...]]
) -> None:
    assert {listener.name: listener.roles for listener in parse_listeners(config(*settings))} == roles


@pytest.mark.parametrize(
    ("settings", "protected"),
    [
        (["listeners=A://:1", "inter.broker.listener.name=A"], []),
        ([TWO_LISTENERS], []),
        ([TWO_LISTENERS, "inter.broker.listener.name=B"], ["B"]),
        ([TWO_LISTENERS, "controller.listener.names=B"], ["B"]),
        ([TWO_LISTENERS, "inter.broker.listener.name=A", "controller.listener.names=B"], ["B"]),
        (
            ["listeners=A://:1,B://:2,C://:3", "inter.broker.listener.name=B", "controller.listener.names=C"],
            ["B", "C"],
        ),
    ],
)
def test_listener_for_nodes_is_protected_if_clients_have_another(settings: list[str], protected: list[str]) -> None:
    assert [listener.name for listener in parse_listeners(config(*settings)) if listener.protected] == protected


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("inter.broker.listener.name=X", "inter.broker.listener.name: X is not in listeners"),
        ("controller.listener.names=X,A", "controller.listener.names: X is not in listeners"),
        (
            "controller.listener.names=A,B",
            "controller.listener.names: all listeners are for controllers, none is for clients",
        ),
        ("controller.quorum.voters=1@a", "controller.quorum.voters: '1@a' is not of the form id@host:port"),
        ("controller.quorum.voters=1@a:0", "controller.quorum.voters: '1@a:0' is not of the form id@host:port"),
        ("controller.quorum.voters=1@a:1,1@b:2", "controller.quorum.voters: node 1 is listed twice"),
        ("controller.quorum.voters=1@a:1,2@a:1", "controller.quorum.voters: two nodes have the address a:1"),
        ("odradek.cluster.id=short", "odradek.cluster.id: 'short' is not 22 characters of base64url"),
    ],
)
def test_invalid_address_raises_one_line_with_the_property(setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(TWO_LISTENERS, setting)
    assert str(error.value) == f"{message} (--set)"


def test_listener_for_brokers_cannot_be_for_controllers_only() -> None:
    with pytest.raises(ConfigError, match="B is the listener for brokers"):
        config(TWO_LISTENERS, "inter.broker.listener.name=B", "controller.listener.names=B")


def test_voters_are_sorted_by_node_id() -> None:
    assert parse_voters(config("controller.quorum.voters=3@[::1]:9,1@a.b:8")) == (
        Voter(1, "a.b", 8),
        Voter(3, "::1", 9),
    )
    assert parse_voters(config()) == ()


@pytest.mark.parametrize(
    ("text", "address"),
    [(":9404", ("127.0.0.1", 9404)), ("0.0.0.0:9404", ("0.0.0.0", 9404)), ("[::]:0", ("::", 0))],
)
def test_metrics_listener_without_host_is_on_the_loopback_address(text: str, address: tuple[str, int]) -> None:
    assert parse_metrics_listener(text) == address


def test_security_protocol_between_brokers_names_the_listener() -> None:
    chosen = config("listeners=PLAINTEXT://a:1,SSL://a:2", "security.inter.broker.protocol=SSL")
    assert inter_broker_listener(chosen) == "SSL"
    assert [BROKER in listener.roles for listener in parse_listeners(chosen)] == [False, True]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("security.inter.broker.protocol=SSL", "security.inter.broker.protocol: SSL is not in listeners"),
        ("security.inter.broker.protocol=TLS", "security.inter.broker.protocol: 'TLS' is not one of PLAINTEXT, SSL"),
    ],
)
def test_invalid_security_protocol_between_brokers_is_refused(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config("listeners=PLAINTEXT://a:1", setting)


def test_name_and_protocol_of_the_listener_for_brokers_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match=r"security\.inter\.broker\.protocol: remove it, or remove inter\.broker"):
        config("security.inter.broker.protocol=PLAINTEXT", "inter.broker.listener.name=PLAINTEXT")


def test_listener_for_brokers_has_the_security_protocol_that_names_it() -> None:
    with pytest.raises(ConfigError, match=r"protocol: SSL, but listener\.security\.protocol\.map gives .* PLAINTEXT"):
        config(
            "listeners=SSL://a:1",
            "listener.security.protocol.map=SSL:PLAINTEXT",
            "security.inter.broker.protocol=SSL",
        )
