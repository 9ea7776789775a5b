"""Security of a local cluster: properties of brokers and clients, files, and what a start refuses."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from odradek.client import Security as ClientSecurity
from odradek.client import read_security
from odradek.client.security.credentials import UserPassword
from odradek.commands import users
from odradek.local.directory import ClusterDirectory, ClusterState
from odradek.local.launch import StartOptions, make_plan
from odradek.local.plan import Plan
from odradek.local.processes import BrokerFailed
from odradek.local.secured import prepare
from odradek.local.security import CLIENT_KINDS, Mode, Security, SecurityFiles, client_config, read_passwords
from odradek.protocol.security_protocol import SecurityProtocol

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SASL = Security(Mode.SASL_SSL, ("alice", "bob"))


def plan_of(security: Security | None) -> Plan:
    return Plan("q7cB0kFhTx2nUoWcD4vJ8g", "127.0.0.1", {1: 9092}, inter_broker={1: 11092}, security=security)


def prepared(directory: Path, security: Security, *, may_create: bool = True) -> SecurityFiles:
    prepare(directory, plan_of(security), [1], may_create=may_create, now=NOW)
    return SecurityFiles(directory)


@pytest.mark.parametrize("mode", list(Mode))
def test_broker_has_tls_on_each_listener_and_verifies_other_brokers(tmp_path: Path, mode: Mode) -> None:
    text = plan_of(Security(mode)).properties(1, tmp_path / "broker-1")
    rows = dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
    assert rows["listeners"] == f"{mode.protocol}://127.0.0.1:9092,INTERNAL://127.0.0.1:11092"
    assert rows["listener.security.protocol.map"] == f"{mode.protocol}:{mode.protocol},INTERNAL:SSL"
    assert rows["listener.name.internal.ssl.client.auth"] == "required"
    assert (rows.get("super.users") == "User:admin") == mode.has_users
    assert ("authorizer.class.name" in rows) == mode.has_users
    assert ("listener.name.ssl.ssl.client.auth" in rows) == (mode is Mode.MTLS)
    mechanisms = rows.get("listener.name.sasl_ssl.sasl.enabled.mechanisms", "")
    assert (users.MECHANISM in mechanisms.split(",")) == (mode is Mode.SASL_SSL)  # that of `odradek users add`


def test_users_have_passwords_that_stay_and_files_that_are_private(tmp_path: Path) -> None:
    files = prepared(tmp_path, SASL)
    passwords = read_passwords(files)
    assert list(passwords) == ["admin", "alice", "bob"]
    assert len(set(passwords.values())) == 3
    assert files.scram.read_text().splitlines()[1] == f"SCRAM-SHA-256=[name=alice,password={passwords['alice']}]"
    security = read_security(files.client("alice"), pytest.fail)
    assert security.credentials == UserPassword("SCRAM-SHA-256", "alice", passwords["alice"])
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}
    assert modes == {0o600}
    prepared(tmp_path, SASL, may_create=False)
    assert read_passwords(files) == passwords
    assert not files.scram.exists()


def test_brokers_of_a_cluster_with_users_have_one_key_of_delegation_tokens(tmp_path: Path) -> None:
    prepared(tmp_path, SASL)
    directory = ClusterDirectory(tmp_path)
    plan = replace(plan_of(SASL), ports={1: 9092, 2: 9093}, inter_broker={1: 11092, 2: 11093})
    first, other = (directory.write_config(plan, node_id).read_text() for node_id in (1, 2))
    prepared(tmp_path, SASL, may_create=False)
    keys = [
        [line for line in text.splitlines() if line.startswith("delegation.token.secret.key=")]
        for text in (first, other, directory.write_config(plan, 1).read_text())
    ]
    assert keys[0] == keys[1] == keys[2]
    assert len(keys[0][0].partition("=")[2]) >= 32
    (tmp_path / "without").mkdir()
    prepared(tmp_path / "without", Security("mtls"))
    assert not SecurityFiles(tmp_path / "without").token_key.exists()


def test_formed_cluster_without_its_passwords_names_the_file(tmp_path: Path) -> None:
    prepared(tmp_path, SASL)
    (tmp_path / "cluster.users").unlink()
    with pytest.raises(BrokerFailed, match=r"cluster\.users has no password of admin, alice, bob; restore it"):
        prepared(tmp_path, SASL, may_create=False)
    (tmp_path / "cluster.users").write_text("[]")
    with pytest.raises(BrokerFailed, match="is damaged"):
        prepared(tmp_path, SASL, may_create=False)


@pytest.mark.parametrize("security", [Security("ssl"), Security("mtls"), SASL])
def test_java_settings_are_valid_client_properties(tmp_path: Path, security: Security) -> None:
    files = prepared(tmp_path, security)
    settings = client_config("java", "a:1", security, files, None)
    made = ClientSecurity.of(settings)
    assert made.protocol is SecurityProtocol[security.kind.protocol]
    assert made.tls is not None
    assert (made.tls.key_store is not None) == (security.kind is Mode.MTLS)
    assert client_config("spark", "a:1", security, files, None) == {
        f"kafka.{name}": settings[name] for name in settings
    }


def test_settings_of_each_library_have_its_own_names(tmp_path: Path) -> None:
    files = prepared(tmp_path, SASL)
    password = read_passwords(files)["alice"]
    made = {kind: client_config(kind, "a:1", SASL, files, "alice") for kind in CLIENT_KINDS}
    assert made["confluent"] == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(files.authority),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": password,
    }
    assert made["kafka-python"] == {
        "bootstrap_servers": "a:1",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(files.authority),
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }
    context = made["aiokafka"].pop("ssl_context")
    assert context.get_ca_certs()[0]["subject"] == ((("commonName", "Odradek local authority"),),)
    assert made["aiokafka"] == {name: value for name, value in made["kafka-python"].items() if name != "ssl_cafile"}


def test_settings_without_security_are_the_addresses_alone(tmp_path: Path) -> None:
    for kind in CLIENT_KINDS:
        assert list(client_config(kind, "a:1", None, SecurityFiles(tmp_path), None).values()) == ["a:1"]


def test_unknown_library_or_user_is_refused(tmp_path: Path) -> None:
    files = prepared(tmp_path, SASL)
    with pytest.raises(ValueError, match="client 'ruby' is unknown; use one of java, confluent"):
        client_config("ruby", "a:1", SASL, files, None)
    with pytest.raises(ValueError, match="user 'carol' is unknown; the cluster has admin, alice, bob"):
        client_config("java", "a:1", SASL, files, "carol")
    with pytest.raises(ValueError, match="the cluster has no users"):
        client_config("java", "a:1", Security("ssl"), files, "alice")


@pytest.mark.parametrize("mode", ["tls", "SSL", ""])
def test_unknown_security_is_refused_with_the_known_ones(mode: str) -> None:
    with pytest.raises(ValueError, match=f"security '{mode}' is unknown; use one of ssl, mtls, sasl_ssl"):
        Security(mode)


@pytest.mark.parametrize("user", ["admin", "", "a b", "a,b", 'a"', "a" * 65, "é"])
def test_names_of_users_are_restricted(user: str) -> None:
    with pytest.raises(ValueError, match="user "):
        Security("sasl_ssl", (user,))


def test_security_is_kept_in_the_directory_and_cannot_change_after_the_first_start(tmp_path: Path) -> None:
    cluster = ClusterDirectory(tmp_path)

    def plan(state: ClusterState | None, security: Security | None, *settings: str) -> Plan:
        made, ports = make_plan(cluster, state, StartOptions(1, None, 0, settings, security))
        ports.close()
        return made

    first = plan(None, SASL)
    cluster.write_state(ClusterState(first))
    state = cluster.read_state()
    assert state is not None
    assert state.plan.security == SASL
    assert plan(state, None).security == SASL
    assert plan(state, Security("ssl")).security == Security("ssl")
    formed = ClusterState(first, formed=[1])
    with pytest.raises(BrokerFailed, match="holds a cluster with security sasl_ssl, users admin, alice, bob"):
        plan(formed, Security("ssl"))
    with pytest.raises(BrokerFailed, match="holds a cluster with no security"):
        plan(ClusterState(plan_of(None), formed=[1]), SASL)
    with pytest.raises(BrokerFailed, match="listeners cannot be set for a cluster with security sasl_ssl"):
        plan(None, SASL, "listeners=A://:1")
    with pytest.raises(BrokerFailed, match="remove it, or use no security"):
        plan(None, SASL, "odradek.inter.broker.authentication=none")


def test_state_file_has_no_password(tmp_path: Path) -> None:
    files = prepared(tmp_path, SASL)
    cluster = ClusterDirectory(tmp_path)
    cluster.write_state(ClusterState(plan_of(SASL)))
    text = cluster.state_file.read_text()
    assert json.loads(text)["plan"]["security"] == {"mode": "sasl_ssl", "users": ["alice", "bob"]}
    assert not [password for password in read_passwords(files).values() if password in text]


def test_user_whose_names_belong_to_another_user_is_refused() -> None:
    """The ACLs of a user are for all names that begin with its own name and a dash."""
    with pytest.raises(ValueError, match="user 'a-b': use another name, because 'a' may use all of its names"):
        Security("sasl_ssl", ("a-b", "a"))
    assert Security("sasl_ssl", ("ab", "a")).users == ("ab", "a")
