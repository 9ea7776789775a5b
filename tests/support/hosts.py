"""Three hosts, each with a broker as a process. A test changes their properties files and restarts them one by one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka.admin import AdminClient

from odradek.local.directory import ClusterDirectory
from odradek.local.processes import BrokerCommand, BrokerProcess, Lifeline
from odradek.local.startup import wait_ready
from odradek.local.stopping import stop_all
from tests.support.command_line import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NODES: Final = (1, 2, 3)
START_SECONDS: Final = 60.0
REPLICATED: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class Hosts:
    """The hosts, with the bootstrap servers and settings of clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = ClusterDirectory(directory)
        self.processes: dict[int, BrokerProcess] = {}
        self._lifeline = Lifeline()
        self.clients: Mapping[str, Any] = {}
        """Settings of confluent-kafka for clients, with the bootstrap servers."""

    def configure(self, node_id: int, rows: Mapping[str, str]) -> None:
        """Write the properties file of a broker. `rows` is added to the properties that all brokers have."""
        written = {"node.id": str(node_id), "log.dirs": str(self.directory.data(node_id)), **REPLICATED, **rows}
        self.directory.config(node_id).write_text("".join(f"{name}={value}\n" for name, value in written.items()))

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
        topics = AdminClient(dict(self.clients)).list_topics(timeout=TIMEOUT_S).topics
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
