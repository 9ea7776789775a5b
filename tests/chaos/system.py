"""The cluster under test behind the proxy: Odradek, or Apache Kafka as the referee of the run itself.

Each broker has a listener for clients and one for brokers; both are advertised as doors of the proxy, and the voters are named by doors, too. So
nothing that is sent by TCP goes past the proxy, except for what the supervisor itself asks.
"""

from __future__ import annotations

import itertools
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from odradek.local.processes import BrokerCommand, BrokerFailed, BrokerProcess, Lifeline
from odradek.local.startup import stop_all, wait_ready
from tests.chaos.clients.common import HEARTBEAT_MS, SESSION_MS
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


@dataclass(frozen=True)
class Ports:
    """Where a broker listens, and the doors of the proxy that lead there."""

    clients: int
    brokers: int
    controller: int
    clients_door: int
    brokers_door: int
    controller_door: int


class System(Protocol):
    """A cluster by node ids. `process_id` is what the nemesis signals."""

    name: str
    ports: dict[int, Ports]

    def prepare(self) -> None:
        """Whatever is done once before the first start."""

    def start(self) -> None: ...

    def start_node(self, node_id: int) -> None: ...

    def kill(self, node_id: int) -> None: ...

    def stop(self, node_id: int) -> None: ...

    def pause(self, node_id: int) -> None: ...

    def resume(self, node_id: int) -> None: ...

    def process_id(self, node_id: int) -> int: ...

    def running(self) -> list[int]: ...

    def wait_ready(self) -> None:
        """Wait until every running broker says that a transaction could commit."""

    def dead(self) -> dict[int, int]:
        """Nodes that have ended although nobody ended them, and their exit codes."""

    def data(self, node_id: int) -> Path: ...

    def log(self, node_id: int) -> Path: ...

    def close(self) -> None: ...


def draw_ports(brokers: int) -> dict[int, Ports]:
    drawn = iter(free_ports(6 * brokers))
    return {node_id: Ports(*itertools.islice(drawn, 6)) for node_id in range(1, brokers + 1)}


def doors(ports: dict[int, Ports]) -> list[str]:
    """PORT:NODE:BROKER_PORT, as the proxy takes them."""
    found = []
    for node_id, each in ports.items():
        pairs = (
            (each.clients_door, each.clients),
            (each.brokers_door, each.brokers),
            (each.controller_door, each.controller),
        )
        found += [f"{door}:{node_id}:{port}" for door, port in pairs]
    return found


def bootstrap(ports: dict[int, Ports]) -> str:
    """For clients: through the proxy."""
    return ",".join(f"127.0.0.1:{each.clients_door}" for each in ports.values())


def replicated(brokers: int) -> dict[str, str]:
    if brokers >= 3:
        return dict(REPLICATED)
    return dict.fromkeys(REPLICATED, "1")


class OdradekSystem:
    name = "Odradek"

    def __init__(self, directory: Path, brokers: int) -> None:
        self.ports = draw_ports(brokers)
        self.directory = directory
        self._processes: dict[int, BrokerProcess] = {}
        self._lifeline = Lifeline()
        self._settings = COMMON | replicated(brokers)

    def prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        voters = ",".join(f"{node}@127.0.0.1:{each.brokers_door}" for node, each in self.ports.items())
        for node_id, each in self.ports.items():
            properties = {
                "node.id": str(node_id),
                "listeners": f"CLIENTS://127.0.0.1:{each.clients},BROKERS://127.0.0.1:{each.brokers}",
                "advertised.listeners": f"CLIENTS://127.0.0.1:{each.clients_door},BROKERS://127.0.0.1:{each.brokers_door}",
                "inter.broker.listener.name": "BROKERS",
                "log.dirs": str(self.data(node_id)),
            } | self._settings
            if len(self.ports) > 1:
                properties |= {"controller.quorum.voters": voters, "odradek.cluster.id": CLUSTER_ID}
            lines = [f"{name}={value}\n" for name, value in properties.items()]
            self._config(node_id).write_text("".join(lines))

    def start(self) -> None:
        for node_id in self.ports:
            self._launch(node_id)
        wait_ready(list(self._processes.values()), timeout_s=START_SECONDS)

    def start_node(self, node_id: int) -> None:
        """Does not wait for its ready line: a node that was cut off may say it late."""
        self._launch(node_id)

    def wait_ready(self) -> None:
        waiting = [process for process in self._processes.values() if not process.endpoint]
        wait_ready(waiting, timeout_s=START_SECONDS)

    def kill(self, node_id: int) -> None:
        self._processes.pop(node_id).kill()

    def stop(self, node_id: int) -> None:
        code = self._processes.pop(node_id).stop()
        if code != 0:
            raise BrokerFailed(f"broker {node_id} ended with exit code {code} after SIGTERM; see {self.log(node_id)}")

    def pause(self, node_id: int) -> None:
        self._processes[node_id].signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._processes[node_id].signal(signal.SIGCONT)

    def process_id(self, node_id: int) -> int:
        return self._processes[node_id].identity.pid

    def running(self) -> list[int]:
        return sorted(self._processes)

    def dead(self) -> dict[int, int]:
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
        command = BrokerCommand(node_id, self._config(node_id), self.log(node_id), lifeline=self._lifeline.reader)
        self._processes[node_id] = BrokerProcess(command)

    def _config(self, node_id: int) -> Path:
        return self.directory / f"broker-{node_id}.properties"


class KafkaSystem:
    name = "Apache Kafka"

    def __init__(self, directory: Path, brokers: int) -> None:
        self.ports = draw_ports(brokers)
        self.directory = directory
        voters = ",".join(f"{node}@127.0.0.1:{each.controller_door}" for node, each in self.ports.items())
        made = {}
        for node_id, each in self.ports.items():
            own = {
                "node.id": str(node_id),
                "controller.quorum.voters": voters,
                "listeners": f"CLIENTS://127.0.0.1:{each.clients},BROKERS://127.0.0.1:{each.brokers},"
                f"CONTROLLER://127.0.0.1:{each.controller}",
                "advertised.listeners": f"CLIENTS://127.0.0.1:{each.clients_door},"
                f"BROKERS://127.0.0.1:{each.brokers_door},CONTROLLER://127.0.0.1:{each.controller_door}",
                "inter.broker.listener.name": "BROKERS",
                "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
            }
            overrides = COMMON | replicated(brokers) | own
            made[node_id] = KafkaBroker(directory / f"broker-{node_id}", port=each.clients, overrides=overrides)
        self._cluster = KafkaCluster(made)

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

    def dead(self) -> dict[int, int]:
        return {}

    def data(self, node_id: int) -> Path:
        return self._cluster.brokers[node_id].data_directory

    def log(self, node_id: int) -> Path:
        return self._cluster.brokers[node_id].console

    def close(self) -> None:
        self._cluster.close()


SYSTEMS: Final[dict[str, Callable[[Path, int], System]]] = {"odradek": OdradekSystem, "kafka": KafkaSystem}
