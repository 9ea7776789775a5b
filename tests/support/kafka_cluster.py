"""Several real Apache Kafka brokers (KRaft, combined roles) that form one cluster: three JVMs out of the same jars."""

from __future__ import annotations

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

from tests.support.kafka_broker import START_SECONDS_MAX, KafkaBroker, Usage
from tests.support.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class KafkaCluster:
    """Brokers by node id. They stop with the process that made them, whatever ends it."""

    def __init__(self, brokers: Mapping[int, KafkaBroker]) -> None:
        self.brokers = dict(brokers)

    @classmethod
    def local(
        cls,
        count: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        start_seconds_max: float = START_SECONDS_MAX,
    ) -> Self:
        """Make brokers with PLAINTEXT listeners on free ports, and with replicated internal topics."""
        ids = range(1, count + 1)
        free = iter(free_ports(2 * count))
        ports = {node_id: (next(free), next(free)) for node_id in ids}
        voters = ",".join(f"{node_id}@127.0.0.1:{ports[node_id][1]}" for node_id in ids)
        brokers = {}
        for node_id in ids:
            port, controller_port = ports[node_id]
            listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
            own = {"node.id": str(node_id), "controller.quorum.voters": voters, "listeners": listeners}
            overrides = REPLICATED | own | dict(settings or {})
            brokers[node_id] = KafkaBroker(port=port, overrides=overrides, start_seconds_max=start_seconds_max)
        return cls(brokers)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def format(self) -> None:
        """Format all data directories in parallel: each needs a JVM."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(KafkaBroker.format, self.brokers.values()))

    def start(self) -> None:
        """Start all stopped brokers and wait until they are ready."""
        started = [broker for broker in self.brokers.values() if not broker.runs]
        for broker in started:
            broker.launch()
        for broker in started:
            broker.wait_ready()

    def start_node(self, node_id: int) -> None:
        self.brokers[node_id].start()

    def kill(self, node_id: int) -> None:
        """SIGKILL."""
        self.brokers[node_id].kill()

    def stop(self, node_id: int) -> None:
        """SIGTERM: Kafka's controlled shutdown."""
        self.brokers[node_id].stop()

    def pause(self, node_id: int) -> None:
        os.kill(self.brokers[node_id].pid, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        os.kill(self.brokers[node_id].pid, signal.SIGCONT)

    def pid(self, node_id: int) -> int:
        return self.brokers[node_id].pid

    def running(self) -> Sequence[int]:
        return [node_id for node_id, broker in self.brokers.items() if broker.runs]

    def usage(self) -> Usage:
        """Return the sum of the usage of all running brokers."""
        found = [self.brokers[node_id].usage() for node_id in self.running()]
        return Usage(sum(usage.rss_bytes for usage in found), sum(usage.cpu_seconds for usage in found))

    def close(self) -> None:
        """Stop all brokers in parallel, since a controlled shutdown needs a quorum, and remove temporary files."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(KafkaBroker.stop, self.brokers.values()))
        for broker in self.brokers.values():
            broker.remove()

    def __enter__(self) -> Self:
        try:
            self.format()
            self.start()
        except (RuntimeError, subprocess.SubprocessError):
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
