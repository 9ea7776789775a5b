"""Change a running cluster from plaintext to TLS, for clients and between brokers, broker by broker."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.drivers.confluent import ConfluentDriver
from tests.support.certificates import issue
from tests.support.command_line import TIMEOUT_S
from tests.support.hosts import NODES, Hosts
from tests.support.load import Load
from tests.support.ports import free_ports

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.full]

TOPIC = "kept"
CLUSTER_ID = "kVp1Jq8tQ4mB2cW7xYz0Ag"
LISTENERS = ("PLAINTEXT", "INTERNAL", "SSL", "INTERNAL_SSL")
PLAIN = {"listeners": "PLAINTEXT,INTERNAL", "inter.broker.listener.name": "INTERNAL"}
MOVE = {"odradek.inter.broker.authentication": "move"}
ALL = {"listeners": "PLAINTEXT,INTERNAL,SSL,INTERNAL_SSL"}
PHASES = (
    {**ALL, **MOVE, "inter.broker.listener.name": "INTERNAL"},
    {**ALL, **MOVE, "inter.broker.listener.name": "INTERNAL_SSL"},
    {"listeners": "SSL,INTERNAL_SSL", "inter.broker.listener.name": "INTERNAL_SSL"},
)
"""The three rolling restarts of docs/security.md. Clients move between the second and the third one."""


class PlainHosts(Hosts):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        ports = iter(free_ports(len(LISTENERS) * len(NODES)))
        self.ports = {node_id: {name: next(ports) for name in LISTENERS} for node_id in NODES}
        authority = issue("authority", ca=True)
        (directory / "authority.pem").write_text(authority.pem)
        for node_id in NODES:
            node = issue(f"node-{node_id}", authority, hosts=["127.0.0.1"])
            (directory / f"node-{node_id}.pem").write_text(node.chain_pem + node.key_pem())
        (directory / "made.secret").write_text(secrets.token_hex())
        self.plain: dict[str, Any] = {"bootstrap.servers": self._bootstrap("PLAINTEXT")}
        self.tls = {
            "bootstrap.servers": self._bootstrap("SSL"),
            "security.protocol": "SSL",
            "ssl.ca.location": str(directory / "authority.pem"),
        }
        self.clients = self.plain

    def _bootstrap(self, listener: str) -> str:
        return ",".join(f"127.0.0.1:{self.ports[node_id][listener]}" for node_id in NODES)

    def set_phase(self, node_id: int, settings: dict[str, str]) -> None:
        names, of_nodes = settings["listeners"].split(","), settings["inter.broker.listener.name"]
        folder = self.directory.path
        rows = {
            "odradek.cluster.id": CLUSTER_ID,
            "cluster.secret.file": str(folder / "made.secret"),
            "controller.quorum.voters": ",".join(f"{id_}@127.0.0.1:{self.ports[id_][of_nodes]}" for id_ in NODES),
            **settings,
            "listeners": ",".join(f"{name}://127.0.0.1:{self.ports[node_id][name]}" for name in names),
        }
        if "INTERNAL_SSL" in names:
            rows |= {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,SSL:SSL,INTERNAL_SSL:SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(folder / f"node-{node_id}.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(folder / "authority.pem"),
                "listener.name.internal_ssl.ssl.client.auth": "required",
            }
        self.configure(node_id, rows)


def test_brokers_and_clients_change_to_tls_one_by_one_under_load(tmp_path: Path) -> None:
    hosts = PlainHosts(tmp_path)
    try:
        for node_id in NODES:
            hosts.set_phase(node_id, PLAIN)
        hosts.launch(*NODES)
        admin = AdminClient(hosts.plain)
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(TIMEOUT_S)
        hosts.await_replicas()
        acknowledged: list[bytes] = []
        driver = ConfluentDriver(hosts.plain)
        load = Load(driver, hosts.plain["bootstrap.servers"], TOPIC, 1)
        for number, settings in enumerate(PHASES):
            if number == len(PHASES) - 1:  # each broker has the new listeners: clients move
                load.await_rounds(2)
                load.stop()
                assert load.failure is None
                acknowledged += load.acknowledged
                hosts.clients, driver = hosts.tls, ConfluentDriver(hosts.tls)
                load = Load(driver, hosts.tls["bootstrap.servers"], TOPIC, 1)
            for node_id in NODES:
                load.await_rounds(2)
                hosts.set_phase(node_id, settings)
                hosts.restart(node_id)
        load.await_rounds(2)
        load.stop()
        assert load.failure is None
        acknowledged += load.acknowledged
        messages = driver.consume(hosts.tls["bootstrap.servers"], TOPIC, [0], "read_committed")
        assert Counter(message.value for message in messages) == Counter(acknowledged)
        logs = hosts.logs()
        for event in ("authentication to a node failed", "authentication of a node failed", "TLS handshake failed"):
            assert event not in logs
        assert "without authentication" not in logs
    finally:
        hosts.close()
