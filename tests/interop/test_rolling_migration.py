"""Change a running cluster of an earlier version to a listener for brokers and a cluster secret, broker by broker."""

from __future__ import annotations

import secrets
import socket
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.support import earlier_cluster
from tests.support.command_line import TIMEOUT_S
from tests.support.hosts import NODES, Hosts
from tests.support.load import Load
from tests.support.local_clusters import read
from tests.support.ports import free_ports
from tests.support.raw_client import encode_request
from tests.support.vote import vote_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.drivers.base import Driver

pytestmark = [pytest.mark.interop, pytest.mark.full]

CLIENT = "confluent-kafka"
EARLIER: dict[str, str] = {
    "inter.broker.listener.name": "PLAINTEXT",
    "odradek.inter.broker.authentication": "none",
}
"""A node of an earlier version: one listener for all roles, and no secret."""
PHASES = {
    "accept": {"inter.broker.listener.name": "PLAINTEXT", "odradek.inter.broker.authentication": "accept"},
    "login": {"inter.broker.listener.name": "INTERNAL", "odradek.inter.broker.authentication": "login"},
    "required": {"inter.broker.listener.name": "INTERNAL"},
}


class EarlierHosts(Hosts):
    """Hosts whose brokers begin with the data of an earlier version."""

    def __init__(self, directory: Path) -> None:
        earlier_cluster.unpack(directory)
        super().__init__(directory)
        self.cluster_id = self.directory.cluster_id_of_data() or ""
        ports = free_ports(2 * len(NODES))
        self.client_ports = dict(zip(NODES, ports, strict=False))
        self.internal_ports = dict(zip(NODES, ports[len(NODES) :], strict=False))
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.client_ports.values())
        self.clients = {"bootstrap.servers": self.bootstrap}
        self.secret = directory / "made.secret"
        self.secret.write_text(secrets.token_hex())

    def set_phase(self, node_id: int, settings: dict[str, str]) -> None:
        internal = settings["inter.broker.listener.name"] == "INTERNAL"
        ports = self.internal_ports if internal else self.client_ports
        listeners = [f"PLAINTEXT://127.0.0.1:{self.client_ports[node_id]}"]
        rows = {
            "odradek.cluster.id": self.cluster_id,
            "controller.quorum.voters": ",".join(f"{voter}@127.0.0.1:{ports[voter]}" for voter in NODES),
            **settings,
        }
        if settings is not EARLIER:
            listeners.append(f"INTERNAL://127.0.0.1:{self.internal_ports[node_id]}")
            rows["cluster.secret.file"] = str(self.secret)
        self.configure(node_id, {**rows, "listeners": ",".join(listeners)})

    def votes(self, port: int) -> bool:
        """Return True if a Vote request of a process without the secret has a response."""
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
            connection.sendall(encode_request(vote_request(self.cluster_id), 2, 1, "broker-2-raft"))
            return bool(connection.recv(1))


def test_brokers_change_to_own_listener_and_secret_one_by_one_under_load(
    tmp_path: Path, drivers: Callable[[str], Driver]
) -> None:
    hosts = EarlierHosts(tmp_path)
    try:
        for node_id in NODES:
            hosts.set_phase(node_id, EARLIER)
        hosts.launch(*NODES)
        hosts.await_replicas()
        load = Load(drivers(CLIENT), hosts.bootstrap, earlier_cluster.TOPIC, 1)
        for settings in PHASES.values():
            for node_id in NODES:
                load.await_rounds(2)
                hosts.set_phase(node_id, settings)
                hosts.restart(node_id)
        load.await_rounds(2)
        load.stop()
        assert load.failure is None
        # The coordinator aborts the open transaction of the stored directory, whose time-out has expired.
        read(hosts.bootstrap, earlier_cluster.TOPIC, len(earlier_cluster.RECORDS) + len(load.acknowledged))
        messages = drivers(CLIENT).consume(hosts.bootstrap, earlier_cluster.TOPIC, [0], "read_committed")
        expected = Counter([*earlier_cluster.RECORDS, *load.acknowledged])
        assert Counter(message.value for message in messages) == expected
        for event in ("authentication to a node failed", "authentication of a node failed", "malformed request"):
            assert event not in hosts.logs()
        for node_id in NODES:
            log = hosts.directory.log(node_id).read_text()
            assert log.count("brokers are served without authentication") == 2
            assert not hosts.votes(hosts.client_ports[node_id])
            assert not hosts.votes(hosts.internal_ports[node_id])
    finally:
        hosts.close()
