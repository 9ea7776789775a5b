"""Systems to measure: one broker or three, with default configuration and data in a temporary directory."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, Self

from odradek import LocalCluster
from odradek.local.processes import STOP_TIMEOUT_S
from tests.support.kafka_broker import KafkaBroker, Usage, process_usage
from tests.support.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

BROKERS = 3
KAFKA_START_SECONDS_MAX = 600.0
"""Maximum seconds of a start of Apache Kafka. With 10,000 partitions, its brokers need more than a minute."""


class System(Protocol):
    """One broker or a cluster. `usage` is the sum over all its processes."""

    name: str

    @property
    def bootstrap(self) -> str: ...

    def prepare(self) -> None:
        """Prepare the data directory before the measurement of the start (kafka-storage format)."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def usage(self) -> Usage: ...


class ClusterSystem(System, Protocol):
    """Cluster whose brokers can be killed and started separately."""

    def kill(self, node_id: int) -> None: ...

    def start_node(self, node_id: int) -> None: ...

    def stop_brokers(self) -> None:
        """Stop all brokers in parallel with a controlled shutdown. The data stays."""

    def kill_brokers(self) -> None:
        """Kill all brokers with SIGKILL. The data stays."""


class Kafka:
    """One broker of Apache Kafka: KRaft, combined roles, -Xmx1G."""

    name = "Apache Kafka"

    def __init__(self) -> None:
        self._broker = KafkaBroker()

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def prepare(self) -> None:
        self._broker.format()

    def start(self) -> None:
        self._broker.start()

    def stop(self) -> None:
        self._broker.__exit__(None, None, None)

    def usage(self) -> Usage:
        return self._broker.usage()


class Odradek:
    """Odradek as ``odradek up`` starts it. Three brokers have replication factor 3 and min.insync.replicas 2."""

    name = "Odradek"

    def __init__(self, brokers: int = 1, stop_timeout_s: float = STOP_TIMEOUT_S) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="odradek-bench-")
        self._cluster = LocalCluster(brokers, directory=self._directory.name, stop_timeout_s=stop_timeout_s)

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def prepare(self) -> None:
        """Do nothing: a broker formats a new directory when it starts."""

    def start(self) -> None:
        self._cluster.start()

    def stop(self) -> None:
        self._cluster.close()
        self._directory.cleanup()

    def usage(self) -> Usage:
        running = [node_id for node_id in self._cluster.node_ids if self._cluster.is_running(node_id)]
        found = [process_usage(self._cluster.pid(node_id)) for node_id in running]
        return Usage(sum(one.rss_bytes for one in found), sum(one.cpu_seconds for one in found))

    def kill(self, node_id: int) -> None:
        self._cluster.kill(node_id)

    def start_node(self, node_id: int) -> None:
        self._cluster.start(node_id)

    def stop_brokers(self) -> None:
        in_parallel(self._cluster.stop, self._cluster.node_ids)

    def kill_brokers(self) -> None:
        in_parallel(self._cluster.kill, self._cluster.node_ids)


class KafkaThree:
    """Three brokers of Apache Kafka, with replication factor 3 and min.insync.replicas 2."""

    name = Kafka.name

    def __init__(self) -> None:
        self._cluster = KafkaCluster.local(BROKERS, start_seconds_max=KAFKA_START_SECONDS_MAX)

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def prepare(self) -> None:
        self._cluster.format()

    def start(self) -> None:
        self._cluster.start()

    def stop(self) -> None:
        self._cluster.close()

    def usage(self) -> Usage:
        return self._cluster.usage()

    def kill(self, node_id: int) -> None:
        self._cluster.kill(node_id)

    def start_node(self, node_id: int) -> None:
        self._cluster.start_node(node_id)

    def stop_brokers(self) -> None:
        in_parallel(self._cluster.stop, self._cluster.brokers)

    def kill_brokers(self) -> None:
        in_parallel(self._cluster.kill, self._cluster.brokers)


def in_parallel(act: Callable[[int], object], node_ids: Iterable[int]) -> None:
    """Call `act` for all brokers at the same time: a controlled shutdown needs a majority of the voters."""
    with ThreadPoolExecutor(BROKERS) as pool:
        list(pool.map(act, node_ids))


class Running:
    """Context manager that prepares a system, and stops it at the end."""

    def __init__(self, system: System) -> None:
        self.system = system

    def __enter__(self) -> Self:
        self.system.prepare()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.system.stop()
