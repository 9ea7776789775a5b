"""The identity of nodes in the configuration: their principals, credentials, contradictions and warnings."""

from typing import Any

import pytest

from odradek.broker.config.addresses import parse_listeners, remote_listeners
from odradek.broker.config.node_identity import (
    NodeCredential,
    identity_warnings,
    node_credentials,
    node_principals,
    serves_principals,
    serves_principals_alone,
    uses_principal,
)
from odradek.broker.config.property import ConfigError
from odradek.cluster.authorizer import Principal
from tests.support.broker_context import config

MODE = "odradek.inter.broker.authentication"
MAPPING = "odradek.node.principals"
AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
VOTERS = "controller.quorum.voters=1@h:1,2@h:2"
OWN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="s1" user_admin="s1";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="s1";'
SASL = (
    "listeners=SASL_SSL://:1,CLIENT://:2",
    "listener.security.protocol.map=SASL_SSL:SASL_SSL,CLIENT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,PLAIN:PLAINTEXT",
    "inter.broker.listener.name=SASL_SSL",
    "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
    f"listener.name.sasl_ssl.plain.sasl.jaas.config={OWN}",
    f"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={SCRAM}",
)
BY_PLAIN = (*SASL, "sasl.mechanism.inter.broker.protocol=PLAIN")
SSL = (
    "listeners=SSL://:1,CLIENT://:2",
    "listener.security.protocol.map=SSL:SSL,CLIENT:PLAINTEXT",
    "inter.broker.listener.name=SSL",
    f"{MODE}=principal",
    "listener.name.ssl.ssl.client.auth=required",
)
CONTROLLERS = (
    *SASL[1:],
    "listeners=SASL_SSL://:1,CLIENT://:2,CONTROLLER://:3",
    "controller.listener.names=CONTROLLER",
    f"listener.name.controller.plain.sasl.jaas.config={OWN}",
    f"listener.name.controller.scram-sha-512.sasl.jaas.config={SCRAM}",
)


def found(*settings: str) -> dict[str, tuple[bool, bool, bool]]:
    """Return for each listener: uses the own principal, serves principals, and serves them alone."""
    made = config(*settings)
    return {
        each.name: (uses_principal(made, each), serves_principals(made, each), serves_principals_alone(made, each))
        for each in parse_listeners(made)
    }


NEITHER, BOTH, ALONE = (False, False, False), (False, True, False), (True, True, True)


def test_mechanism_for_a_listener_with_sasl_replaces_the_cluster_secret() -> None:
    assert found(*BY_PLAIN) == {"SASL_SSL": ALONE, "CLIENT": NEITHER}
    assert found(*SASL) == {"SASL_SSL": NEITHER, "CLIENT": NEITHER}
    assert found(*BY_PLAIN, f"{MODE}=principal")["SASL_SSL"] == ALONE


def test_certificate_replaces_the_cluster_secret_only_if_the_mode_says_so() -> None:
    assert found(*SSL, f"{MAPPING}=1=User:CN=a")["SSL"] == ALONE
    assert found(*SSL, f"{MODE}=required")["SSL"] == NEITHER


def test_mode_move_serves_principals_of_the_mapping_beside_the_cluster_secret() -> None:
    moving = (*SSL, f"{MODE}=move")
    assert found(*moving) == {"SSL": NEITHER, "CLIENT": NEITHER}
    assert found(*moving, f"{MAPPING}=1=User:CN=a") == {"SSL": BOTH, "CLIENT": NEITHER}
    assert found(*BY_PLAIN, f"{MODE}=move", f"{MAPPING}=1=User:a")["SASL_SSL"] == BOTH


def test_mode_principal_move_uses_principals_and_serves_both() -> None:
    settings = (*SSL, f"{MODE}=principal-move", f"{MAPPING}=1=User:CN=a")
    assert found(*settings) == {"SSL": (True, True, False), "CLIENT": NEITHER}


def test_listener_for_controllers_has_its_own_mechanism() -> None:
    assert node_credentials(config(*CONTROLLERS, "sasl.mechanism.controller.protocol=PLAIN")) == {
        "CONTROLLER": NodeCredential("PLAIN", "admin", "s1")
    }
    settings = ("sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512", "sasl.mechanism.controller.protocol=PLAIN")
    assert node_credentials(config(*CONTROLLERS, VOTERS, *settings)) == {
        "SASL_SSL": NodeCredential("SCRAM-SHA-512", "admin", "s1"),
        "CONTROLLER": NodeCredential("PLAIN", "admin", "s1"),
    }


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL"])
def test_broker_without_a_listener_for_controllers_has_a_principal_there(protocol: str) -> None:
    """The settings with which a listener serves clients are those of the controllers."""
    settings = (
        "process.roles=broker",
        "node.id=5",
        "controller.quorum.voters=1@h:1",
        "listeners=INTERNAL://:1,CLIENT://:2",
        f"listener.security.protocol.map=INTERNAL:SSL,CLIENT:PLAINTEXT,CONTROLLER:{protocol}",
        "inter.broker.listener.name=INTERNAL",
        "controller.listener.names=CONTROLLER",
        "listener.name.internal.ssl.client.auth=required",
        f"{MODE}=principal",
        f"{MAPPING}=1=User:a;5=User:admin",
        *(
            ("sasl.mechanism.controller.protocol=PLAIN", f"listener.name.controller.plain.sasl.jaas.config={OWN}")
            if protocol == "SASL_SSL"
            else ()
        ),
    )
    expected = {"CONTROLLER": NodeCredential("PLAIN", "admin", "s1")} if protocol == "SASL_SSL" else {}
    made = config(*settings)
    assert node_credentials(made) == expected
    assert [uses_principal(made, each) for each in remote_listeners(made)] == [True]
    with pytest.raises(ConfigError, match="node 5 is missing; add the principal of this node"):
        config(*settings, f"{MAPPING}=1=User:a")


def test_credential_shows_no_password() -> None:
    assert "s1" not in repr(node_credentials(config(*BY_PLAIN)))


def test_mapping_gives_each_principal_the_ids_of_its_nodes() -> None:
    text = " 1=User:a ;2=User:CN=b,OU=c; 3=User:a;1=User:d;"
    assert node_principals(config(*BY_PLAIN, f"{MAPPING}={text}")) == {
        Principal("User", "a"): {1, 3},
        Principal("User", "CN=b,OU=c"): {2},
        Principal("User", "d"): {1},
    }


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ((*BY_PLAIN, f"{MAPPING}=User:a"), "is not of the form id=User:name"),
        ((*BY_PLAIN, f"{MAPPING}=1=Node:cluster"), "is not of the form id=User:name"),
        ((*BY_PLAIN, f"{MAPPING}=9999999999=User:a"), "is not of the form id=User:name"),
        ((*BY_PLAIN, f"{MAPPING}=1=User:ANONYMOUS"), "User:ANONYMOUS has not authenticated"),
        ((f"{MAPPING}=1=User:a",), "without effect, because nodes use the cluster secret"),
        ((*SASL, f"{MODE}=principal"), "sasl.mechanism.inter.broker.protocol: not set"),
        ((*BY_PLAIN, f"{MODE}=required"), "required uses the cluster secret; set principal"),
        ((*BY_PLAIN, f"{MODE}=accept"), "accept uses the cluster secret; set principal"),
        ((*SASL, "inter.broker.listener.name=CLIENT", f"{MODE}=principal"), "CLIENT has PLAINTEXT"),
        ((*SSL[:-1], f"{MAPPING}=1=User:a"), "listener.name.ssl.ssl.client.auth: not set"),
        (SSL, "odradek.node.principals: not set, so that clients could act as nodes"),
        ((*SASL, "sasl.mechanism.inter.broker.protocol=OAUTHBEARER"), "nodes cannot request tokens of OAUTHBEARER"),
        ((*SASL, "sasl.mechanism.inter.broker.protocol=GSSAPI"), "GSSAPI is not supported; use one of PLAIN, SCRAM"),
        ((*SASL, "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256"), "is not in sasl.enabled.mechanisms"),
        (
            (*BY_PLAIN, f"listener.name.sasl_ssl.plain.sasl.jaas.config={OWN.replace('username', 'user_name')}"),
            "listener.name.sasl_ssl.plain.sasl.jaas.config: nodes log in with it; add the options username",
        ),
        (
            (*SASL, VOTERS, "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512"),
            "SCRAM-SHA-512 is not possible on the listener SASL_SSL for controllers; use PLAIN, or SSL with",
        ),
        (
            (*CONTROLLERS, VOTERS, "sasl.mechanism.controller.protocol=SCRAM-SHA-512"),
            "sasl.mechanism.controller.protocol: SCRAM-SHA-512 is not possible",
        ),
        ((*BY_PLAIN, VOTERS, f"{MAPPING}=1=User:admin"), "node 2 of controller.quorum.voters is missing"),
        ((*BY_PLAIN, VOTERS, AUTHORIZER), "super.users: User:admin is missing"),
        (
            (*BY_PLAIN, VOTERS, AUTHORIZER, f"{MAPPING}=1=User:admin;2=User:b;3=User:c", "super.users=User:admin"),
            "super.users: User:b is missing",
        ),
    ],
)
def test_contradictions_are_refused_with_a_remedy(settings: tuple[str, ...], refusal: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(*settings)
    assert refusal in str(caught.value)
    assert "s1" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        (*BY_PLAIN, VOTERS),
        (*BY_PLAIN, VOTERS, AUTHORIZER, "super.users=User:admin"),
        # The ACLs of node 3, which is no voter, are known to the others when it starts.
        (*BY_PLAIN, VOTERS, AUTHORIZER, f"{MAPPING}=1=User:a;2=User:b;3=User:c", "super.users=User:a;User:b"),
        (*SSL, AUTHORIZER),
        (*BY_PLAIN, f"{MODE}=move"),
        (*SASL, "sasl.mechanism.controller.protocol=GSSAPI"),
    ],
)
def test_consistent_identities_are_accepted(settings: tuple[str, ...]) -> None:
    config(*settings)


def test_warnings_name_what_shared_principals_and_missing_encryption_do_not_prevent() -> None:
    shared = "each principal with CLUSTER_ACTION can act as any node"
    mapping = f"{MAPPING}=1=User:admin;2=User:admin"
    plaintext = [text.replace("SASL_SSL:SASL_SSL", "SASL_SSL:SASL_PLAINTEXT") for text in BY_PLAIN]
    unverified = "listener.name.sasl_ssl.ssl.endpoint.identification.algorithm="
    expected: dict[tuple[Any, ...], list[str]] = {
        (*BY_PLAIN, VOTERS): [shared],
        (*BY_PLAIN, VOTERS, mapping): [],
        (*BY_PLAIN,): [],
        (*SASL, VOTERS): [],
        (*plaintext, VOTERS, mapping): ["passwords of nodes and their requests are not encrypted"],
        (*BY_PLAIN, VOTERS, mapping, unverified): ["certificates of nodes are accepted for other hosts"],
    }
    for settings, events in expected.items():
        assert [event for event, _ in identity_warnings(config(*settings))] == events
