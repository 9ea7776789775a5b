"""The cluster under test: Odradek, or Apache Kafka, which validates the checks themselves.

Each broker has a listener for clients and a listener for brokers. The advertised listeners and the voters' addresses
are ports of the proxy. All traffic between clients and brokers and between brokers therefore passes the proxy.
"""

from __future__ import annotations

import itertools
import secrets
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from odradek.local.processes import BrokerCommand, BrokerFailed, BrokerProcess, Lifeline
from odradek.local.startup import wait_ready
from odradek.local.stopping import stop_all
from odradek.pipeline.cluster.access import Access
from odradek.private_files import replace_private
from tests.chaos.clients.common import HEARTBEAT_MS, SESSION_MS
from tests.chaos.security import ADMIN, ChaosSecurity
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_cluster import REPLICATED, KafkaCluster
from tests.support.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLUSTER_ID: Final = "b2RyYWRlay1jaGFvcy0wMQ"
COMMON: Final = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.num.partitions": "3",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.segment.bytes": "100000",
    "offsets.topic.segment.bytes": "100000",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.min.compaction.lag.ms": "4000",
    "group.initial.rebalance.delay.ms": "500",
    "group.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
}
START_SECONDS: Final = 60.0
BYTE_BUDGET_MIB: Final = 128
"""queued.max.request.bytes of the brokers in MiB: all frames, decoded requests and responses in memory."""


@dataclass(frozen=True)
class Ports:
    """Listener ports of a broker, and the proxy ports that forward to them."""

    clients: int
    brokers: int
    controller: int
    clients_proxy: int
    brokers_proxy: int
    controller_proxy: int


class System(Protocol):
    """A cluster of broker processes, by node id."""

    name: str
    ports: dict[int, Ports]
    cluster_id: str
    security: ChaosSecurity | None

    @property
    def access(self) -> Access:
        """Access of the supervisor."""

    def prepare(self) -> None:
        """Write the configuration and format the storage, once before the first start."""

    def start(self) -> None: ...

    def start_node(self, node_id: int) -> None: ...

    def kill(self, node_id: int) -> None: ...

    def stop(self, node_id: int) -> None: ...

    def pause(self, node_id: int) -> None: ...

    def resume(self, node_id: int) -> None: ...

    def process_id(self, node_id: int) -> int: ...

    def running(self) -> list[int]: ...

    def wait_ready(self) -> None:
        """Wait until each running broker reports that it is ready."""

    def unexpected_exits(self) -> dict[int, int]:
        """Return the exit codes of the brokers that exited although they were neither stopped nor killed."""

    def data(self, node_id: int) -> Path: ...

    def log(self, node_id: int) -> Path: ...

    def close(self) -> None: ...


def allocate_ports(brokers: int) -> dict[int, Ports]:
    free = iter(free_ports(6 * brokers))
    return {node_id: Ports(*itertools.islice(free, 6)) for node_id in range(1, brokers + 1)}


def proxy_arguments(ports: dict[int, Ports]) -> list[str]:
    """Return PROXY_PORT:NODE:BROKER_PORT for each listener: the arguments of the proxy process."""
    arguments = []
    for node_id, node_ports in ports.items():
        forwards = (
            (node_ports.clients_proxy, node_ports.clients),
            (node_ports.brokers_proxy, node_ports.brokers),
            (node_ports.controller_proxy, node_ports.controller),
        )
        arguments += [f"{proxy_port}:{node_id}:{port}" for proxy_port, port in forwards]
    return arguments


def bootstrap(ports: dict[int, Ports]) -> str:
    """Return the bootstrap servers for clients: the proxy ports of all brokers."""
    return ",".join(f"127.0.0.1:{node_ports.clients_proxy}" for node_ports in ports.values())


def replicated(brokers: int) -> dict[str, str]:
    if brokers >= 3:
        return dict(REPLICATED)
    return dict.fromkeys(REPLICATED, "1")


class OdradekSystem:
    name = "Odradek"
    cluster_id = CLUSTER_ID

    def __init__(self, directory: Path, brokers: int, security: ChaosSecurity | None = None) -> None:
        self.security = security
        self.ports = allocate_ports(brokers)
        self.directory = directory
        self._processes: dict[int, BrokerProcess] = {}
        self._log_bytes: dict[int, int] = {}
        """Size of the log of each broker at its last start."""
        self._lifeline = Lifeline()
        self._settings = COMMON | replicated(brokers)

    @property
    def access(self) -> Access:
        addresses = bootstrap(self.ports)
        return Access(addresses) if self.security is None else self.security.access(addresses, ADMIN)

    def prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.security is not None:
            self.security.prepare(list(self.ports))
        secret = self.directory / "cluster.secret"
        secret.write_text(secrets.token_hex())
        secret.chmod(0o600)
        voters = ",".join(f"{node}@127.0.0.1:{node_ports.brokers_proxy}" for node, node_ports in self.ports.items())
        for node_id, node_ports in self.ports.items():
            properties = {
                "node.id": str(node_id),
                "listeners": f"CLIENTS://127.0.0.1:{node_ports.clients},BROKERS://127.0.0.1:{node_ports.brokers}",
                "advertised.listeners": f"CLIENTS://127.0.0.1:{node_ports.clients_proxy},BROKERS://127.0.0.1:{node_ports.brokers_proxy}",
                "inter.broker.listener.name": "BROKERS",
                "cluster.secret.file": str(secret),
                "queued.max.request.bytes": str(BYTE_BUDGET_MIB << 20),
                "log.dirs": str(self.data(node_id)),
            } | self._settings
            if len(self.ports) > 1:
                properties |= {"controller.quorum.voters": voters, "odradek.cluster.id": CLUSTER_ID}
            if self.security is not None:
                properties |= self.security.broker_rows(node_id)
            replace_private(self._config(node_id), "".join(f"{name}={value}\n" for name, value in properties.items()))

    def start(self) -> None:
        for node_id in self.ports:
            self._launch(node_id)
        wait_ready(list(self._processes.values()), timeout_s=START_SECONDS)

    def start_node(self, node_id: int) -> None:
        """Start a broker without waiting until it is ready. A broker in a network partition becomes ready late."""
        self._launch(node_id)

    def wait_ready(self) -> None:
        waiting = [process for process in self._processes.values() if not process.endpoint]
        wait_ready(waiting, timeout_s=START_SECONDS)

    def kill(self, node_id: int) -> None:
        self._processes.pop(node_id).kill()

    def stop(self, node_id: int) -> None:
        code = self._processes.pop(node_id).stop()
        is_silent = self.log(node_id).stat().st_size == self._log_bytes[node_id]
        if code == -signal.SIGTERM and is_silent:
            return  # the interpreter was starting, and did not handle the signal yet
        if code != 0:
            raise BrokerFailed(f"broker {node_id} exited with code {code} after SIGTERM; see {self.log(node_id)}")

    def pause(self, node_id: int) -> None:
        self._processes[node_id].signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._processes[node_id].signal(signal.SIGCONT)

    def process_id(self, node_id: int) -> int:
        return self._processes[node_id].identity.pid

    def running(self) -> list[int]:
        return sorted(self._processes)

    def unexpected_exits(self) -> dict[int, int]:
        codes = {node_id: process.poll() for node_id, process in self._processes.items()}
        return {node_id: code for node_id, code in codes.items() if code is not None}

    def data(self, node_id: int) -> Path:
        return self.directory / f"broker-{node_id}"

    def log(self, node_id: int) -> Path:
        return self.directory / f"broker-{node_id}.log"

    def close(self) -> None:
        stop_all(list(self._processes.values()))
        self._processes.clear()
        self._lifeline.close()

    def _launch(self, node_id: int) -> None:
        log = self.log(node_id)
        self._log_bytes[node_id] = log.stat().st_size if log.exists() else 0
        command = BrokerCommand(node_id, self._config(node_id), self.log(node_id), lifeline=self._lifeline.reader)
        self._processes[node_id] = BrokerProcess(command)

    def _config(self, node_id: int) -> Path:
        return self.directory / f"broker-{node_id}.properties"


class KafkaSystem:
    name = "Apache Kafka"
    cluster_id = ""
    security: ChaosSecurity | None = None

    def __init__(self, directory: Path, brokers: int, security: ChaosSecurity | None = None) -> None:
        assert security is None, "a secured run is for Odradek"
        self.ports = allocate_ports(brokers)
        self.directory = directory
        voters = ",".join(f"{node}@127.0.0.1:{node_ports.controller_proxy}" for node, node_ports in self.ports.items())
        nodes = {}
        for node_id, node_ports in self.ports.items():
            own = {
                "node.id": str(node_id),
                "controller.quorum.voters": voters,
                "listeners": f"CLIENTS://127.0.0.1:{node_ports.clients},BROKERS://127.0.0.1:{node_ports.brokers},"
                f"CONTROLLER://127.0.0.1:{node_ports.controller}",
                "advertised.listeners": f"CLIENTS://127.0.0.1:{node_ports.clients_proxy},"
                f"BROKERS://127.0.0.1:{node_ports.brokers_proxy},CONTROLLER://127.0.0.1:{node_ports.controller_proxy}",
                "inter.broker.listener.name": "BROKERS",
                "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
            }
            overrides = COMMON | replicated(brokers) | own
            nodes[node_id] = KafkaBroker(directory / f"broker-{node_id}", port=node_ports.clients, overrides=overrides)
        self._cluster = KafkaCluster(nodes)

    @property
    def access(self) -> Access:
        return Access(bootstrap(self.ports))

    def prepare(self) -> None:
        self._cluster.format()

    def start(self) -> None:
        self._cluster.start()

    def start_node(self, node_id: int) -> None:
        self._cluster.brokers[node_id].launch()

    def wait_ready(self) -> None:
        for broker in self._cluster.brokers.values():
            broker.wait_ready()

    def kill(self, node_id: int) -> None:
        self._cluster.kill(node_id)

    def stop(self, node_id: int) -> None:
        self._cluster.stop(node_id)

    def pause(self, node_id: int) -> None:
        self._cluster.pause(node_id)

    def resume(self, node_id: int) -> None:
        self._cluster.resume(node_id)

    def process_id(self, node_id: int) -> int:
        return self._cluster.pid(node_id)

    def running(self) -> list[int]:
        return list(self._cluster.running())

    def unexpected_exits(self) -> dict[int, int]:
        return {}

    def data(self, node_id: int) -> Path:
        return self._cluster.brokers[node_id].data_directory

    def log(self, node_id: int) -> Path:
        return self._cluster.brokers[node_id].console

    def close(self) -> None:
        self._cluster.close()


SYSTEMS: Final[dict[str, Callable[[Path, int, ChaosSecurity | None], System]]] = {
    "odradek": OdradekSystem,
    "kafka": KafkaSystem,
}
