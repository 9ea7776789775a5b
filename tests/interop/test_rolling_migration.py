"""Change a running cluster of an earlier version to a listener for brokers and a cluster secret, broker by broker."""

from __future__ import annotations

import secrets
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from odradek.local.directory import ClusterDirectory
from odradek.local.processes import BrokerCommand, BrokerProcess, Lifeline
from odradek.local.startup import wait_ready
from odradek.local.stopping import stop_all
from tests.support import earlier_cluster
from tests.support.command_line import TIMEOUT_S
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

NODES = (1, 2, 3)
CLIENT = "confluent-kafka"
START_SECONDS = 60.0
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
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class Hosts:
    """Three hosts, each with a broker. The test changes their properties files."""

    def __init__(self, directory: Path) -> None:
        earlier_cluster.unpack(directory)
        self.directory = ClusterDirectory(directory)
        self.cluster_id = self.directory.cluster_id_of_data() or ""
        ports = free_ports(2 * len(NODES))
        self.client_ports = dict(zip(NODES, ports, strict=False))
        self.internal_ports = dict(zip(NODES, ports[len(NODES) :], strict=False))
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.client_ports.values())
        self.secret = directory / "made.secret"
        self.secret.write_text(secrets.token_hex())
        self.processes: dict[int, BrokerProcess] = {}
        self._lifeline = Lifeline()
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})

    def configure(self, node_id: int, settings: dict[str, str]) -> None:
        internal = settings["inter.broker.listener.name"] == "INTERNAL"
        ports = self.internal_ports if internal else self.client_ports
        listeners = [f"PLAINTEXT://127.0.0.1:{self.client_ports[node_id]}"]
        rows = {
            "node.id": str(node_id),
            "log.dirs": str(self.directory.data(node_id)),
            "odradek.cluster.id": self.cluster_id,
            "controller.quorum.voters": ",".join(f"{voter}@127.0.0.1:{ports[voter]}" for voter in NODES),
            **REPLICATED,
            **settings,
        }
        if settings is not EARLIER:
            listeners.append(f"INTERNAL://127.0.0.1:{self.internal_ports[node_id]}")
            rows["cluster.secret.file"] = str(self.secret)
        rows["listeners"] = ",".join(listeners)
        self.directory.config(node_id).write_text("".join(f"{name}={value}\n" for name, value in rows.items()))

    def launch(self, *node_ids: int) -> None:
        """Start brokers, and wait until they are ready."""
        for node_id in node_ids:
            command = BrokerCommand(
                node_id,
                self.directory.config(node_id),
                self.directory.log(node_id),
                lifeline=self._lifeline.reader,
            )
            self.processes[node_id] = BrokerProcess(command)
        wait_ready([self.processes[node_id] for node_id in node_ids], timeout_s=START_SECONDS)

    def restart(self, node_id: int) -> None:
        assert self.processes.pop(node_id).stop() == 0
        self.launch(node_id)
        self.await_replicas()

    def await_replicas(self) -> None:
        """Wait until each partition has all of its replicas in sync, as an operator does between two restarts."""
        deadline = time.monotonic() + TIMEOUT_S
        while behind := self._under_replicated():
            assert time.monotonic() < deadline, behind

    def _under_replicated(self) -> list[str]:
        topics = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return [
            f"{name}-{number}"
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
            if len(partition.isrs) < len(NODES)
        ]

    def close(self) -> None:
        stop_all(list(self.processes.values()))
        self._lifeline.close()

    def logs(self) -> str:
        return "".join(self.directory.log(node_id).read_text() for node_id in NODES)

    def votes(self, port: int) -> bool:
        """Return True if a Vote request of a process without the secret has a response."""
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
            connection.sendall(encode_request(vote_request(self.cluster_id), 2, 1, "broker-2-raft"))
            return bool(connection.recv(1))


def test_brokers_change_to_own_listener_and_secret_one_by_one_under_load(
    tmp_path: Path, drivers: Callable[[str], Driver]
) -> None:
    hosts = Hosts(tmp_path)
    try:
        for node_id in NODES:
            hosts.configure(node_id, EARLIER)
        hosts.launch(*NODES)
        hosts.await_replicas()
        load = Load(drivers(CLIENT), hosts.bootstrap, earlier_cluster.TOPIC, 1)
        for settings in PHASES.values():
            for node_id in NODES:
                load.await_rounds(2)
                hosts.configure(node_id, settings)
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
