"""Change the security of a running cluster broker by broker: to TLS, to SASL_SSL, and to principals of nodes."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.drivers.confluent import ConfluentDriver
from tests.support.certificates import issue
from tests.support.command_line import TIMEOUT_S
from tests.support.continuous_reader import ContinuousReader
from tests.support.hosts import NODES, Hosts
from tests.support.load import Load
from tests.support.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.full]

TOPIC = "kept"
CLUSTER_ID = "kVp1Jq8tQ4mB2cW7xYz0Ag"
PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "INTERNAL": "PLAINTEXT",
    "SSL": "SSL",
    "INTERNAL_SSL": "SSL",
    "SASL": "SASL_SSL",
    "INTERNAL_SASL": "SASL_SSL",
}
"""Security protocols of the listeners. Names that begin with INTERNAL are those between brokers."""
MODE = "odradek.inter.broker.authentication"
PRINCIPALS = {"odradek.node.principals": ";".join(f"{node_id}=User:node-{node_id}" for node_id in NODES)}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def settings(
    listeners: str, between: str, mode: str | None = None, more: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the properties of one phase: its listeners, the one between brokers, the mode and further ones."""
    rows = {"listeners": listeners, "inter.broker.listener.name": between, **more}
    return rows if mode is None else rows | {MODE: mode}


@dataclass(frozen=True)
class Change:
    """A change of a running cluster by rolling restarts, as docs/security.md describes it.

    Clients move to `clients_at_last` between the last two restarts.
    """

    first: dict[str, str]
    restarts: tuple[dict[str, str], ...]
    clients: str
    clients_at_last: str


TO_TLS = Change(
    settings("PLAINTEXT,INTERNAL", "INTERNAL"),
    (
        settings("PLAINTEXT,INTERNAL,SSL,INTERNAL_SSL", "INTERNAL", "move"),
        settings("PLAINTEXT,INTERNAL,SSL,INTERNAL_SSL", "INTERNAL_SSL", "move"),
        settings("SSL,INTERNAL_SSL", "INTERNAL_SSL"),
    ),
    "PLAINTEXT",
    "SSL",
)
BY_PLAIN = {"sasl.mechanism.inter.broker.protocol": "PLAIN"} | PRINCIPALS
TO_SASL = Change(
    settings("PLAINTEXT,INTERNAL", "INTERNAL"),
    (
        settings("PLAINTEXT,INTERNAL,SASL,INTERNAL_SASL", "INTERNAL", "move", PRINCIPALS),
        settings("PLAINTEXT,INTERNAL,SASL,INTERNAL_SASL", "INTERNAL_SASL", "principal-move", BY_PLAIN),
        settings("SASL,INTERNAL_SASL", "INTERNAL_SASL", "principal", BY_PLAIN),
    ),
    "PLAINTEXT",
    "SASL",
)
TO_CERTIFICATES = Change(
    settings("SSL,INTERNAL_SSL", "INTERNAL_SSL"),
    (
        settings("SSL,INTERNAL_SSL", "INTERNAL_SSL", "move", PRINCIPALS),
        settings("SSL,INTERNAL_SSL", "INTERNAL_SSL", "principal-move", PRINCIPALS),
        settings("SSL,INTERNAL_SSL", "INTERNAL_SSL", "principal", PRINCIPALS),
    ),
    "SSL",
    "SSL",
)


class ChangingHosts(Hosts):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        ports = iter(free_ports(len(PROTOCOLS) * len(NODES)))
        self.ports = {node_id: {name: next(ports) for name in PROTOCOLS} for node_id in NODES}
        authority = issue("authority", ca=True)
        (directory / "authority.pem").write_text(authority.pem)
        for node_id in NODES:
            node = issue(f"node-{node_id}", authority, hosts=["127.0.0.1"])
            (directory / f"node-{node_id}.pem").write_text(node.chain_pem + node.key_pem())
        (directory / "made.secret").write_text(secrets.token_hex())

    def clients_of(self, listener: str) -> dict[str, Any]:
        """Return the settings of confluent-kafka for clients of a listener."""
        found: dict[str, Any] = {
            "bootstrap.servers": ",".join(f"127.0.0.1:{self.ports[node_id][listener]}" for node_id in NODES)
        }
        if PROTOCOLS[listener] != "PLAINTEXT":
            authority = str(self.directory.path / "authority.pem")
            found |= {"security.protocol": PROTOCOLS[listener], "ssl.ca.location": authority}
        if PROTOCOLS[listener] == "SASL_SSL":
            found |= {"sasl.mechanism": "PLAIN", "sasl.username": "client", "sasl.password": "of client"}
        return found

    def set_phase(self, node_id: int, rows: dict[str, str]) -> None:
        names, of_nodes = rows["listeners"].split(","), rows["inter.broker.listener.name"]
        folder = self.directory.path
        written = {
            "odradek.cluster.id": CLUSTER_ID,
            "cluster.secret.file": str(folder / "made.secret"),
            "controller.quorum.voters": ",".join(f"{id_}@127.0.0.1:{self.ports[id_][of_nodes]}" for id_ in NODES),
            "listener.security.protocol.map": ",".join(f"{name}:{PROTOCOLS[name]}" for name in names),
            **rows,
            "listeners": ",".join(f"{name}://127.0.0.1:{self.ports[node_id][name]}" for name in names),
        }
        if "INTERNAL_SSL" in names or "INTERNAL_SASL" in names:
            written |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(folder / f"node-{node_id}.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(folder / "authority.pem"),
            }
        if "INTERNAL_SSL" in names:
            written |= {
                "listener.name.internal_ssl.ssl.client.auth": "required",
                "listener.name.internal_ssl.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            }
        if "INTERNAL_SASL" in names:
            nodes = " ".join(f'user_node-{id_}="of {id_}"' for id_ in NODES)
            own = f'username="node-{node_id}" password="of {node_id}"'
            written |= {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.internal_sasl.plain.sasl.jaas.config": f"{PLAIN} {own} {nodes};",
                "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN} user_client="of client";',
            }
        self.configure(node_id, written)


class Traffic:
    """A producer and a consumer of one listener, which run during restarts."""

    def __init__(self, clients: dict[str, Any], group: str, read_before: int) -> None:
        """`read_before`: values that the topic has already."""
        self._read_before = read_before
        self._load = Load(ConfluentDriver(clients), clients["bootstrap.servers"], TOPIC, 1)
        self._reader = ContinuousReader(clients, TOPIC, group)

    def go_on(self) -> None:
        """Wait until the producer and the consumer have made progress."""
        self._load.await_rounds(2)
        assert self._load.failure is None
        self._reader.await_values(self._read_before + len(self._load.acknowledged))
        assert self._reader.failure is None

    def stop(self) -> list[bytes]:
        """Stop both, and return the acknowledged values. All values of the topic have been read once."""
        self._load.await_rounds(2)
        self._load.stop()
        assert self._load.failure is None
        acknowledged = self._load.acknowledged
        self._reader.stop(self._read_before + len(acknowledged))
        assert self._reader.failure is None
        assert not Counter(acknowledged) - Counter(self._reader.values)
        assert len(self._reader.values) == self._read_before + len(acknowledged)
        return acknowledged


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(TO_TLS, id="plaintext to TLS"),
        pytest.param(TO_SASL, id="plaintext and secret to SASL_SSL and principals"),
        pytest.param(TO_CERTIFICATES, id="secret to principals of certificates"),
    ],
)
def test_brokers_and_clients_change_one_by_one_under_load(tmp_path: Path, change: Change) -> None:
    hosts = ChangingHosts(tmp_path)
    try:
        for node_id in NODES:
            hosts.set_phase(node_id, change.first)
        hosts.clients = clients = hosts.clients_of(change.clients)
        hosts.launch(*NODES)
        admin = AdminClient(clients)  # a reference: without one, its requests are canceled
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(TIMEOUT_S)
        hosts.await_replicas()
        acknowledged: list[bytes] = []
        traffic = Traffic(clients, "before", 0)
        for rows in change.restarts:
            if rows is change.restarts[-1]:  # each broker has the new listeners: clients move
                acknowledged += traffic.stop()
                hosts.clients = clients = hosts.clients_of(change.clients_at_last)
                traffic = Traffic(clients, "after", len(acknowledged))
            for node_id in NODES:
                traffic.go_on()
                hosts.set_phase(node_id, rows)
                hosts.restart(node_id)
        acknowledged += traffic.stop()
        messages = ConfluentDriver(clients).consume(clients["bootstrap.servers"], TOPIC, [0], "read_committed")
        assert Counter(message.value for message in messages) == Counter(acknowledged)
        logs = hosts.logs()
        for event in (
            "authentication to a node failed",
            "authentication of a node failed",
            "authentication failed",
            "TLS handshake failed",
            "malformed request",
            "without authentication",
        ):
            assert event not in logs
    finally:
        hosts.close()
