"""Several real Apache Kafka brokers (KRaft, combined roles) that form one cluster: three JVMs out of the same jars."""

from __future__ import annotations

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

from tests.support.kafka_broker import KafkaBroker, Usage
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
    def local(cls, count: int = 3, settings: Mapping[str, str] | None = None) -> Self:
        """Plain listeners on free ports, everything replicated."""
        ids = range(1, count + 1)
        drawn = iter(free_ports(2 * count))
        ports = {node_id: (next(drawn), next(drawn)) for node_id in ids}
        voters = ",".join(f"{node_id}@127.0.0.1:{ports[node_id][1]}" for node_id in ids)
        brokers = {}
        for node_id in ids:
            port, controller_port = ports[node_id]
            listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
            own = {"node.id": str(node_id), "controller.quorum.voters": voters, "listeners": listeners}
            brokers[node_id] = KafkaBroker(port=port, overrides=REPLICATED | own | dict(settings or {}))
        return cls(brokers)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def format(self) -> None:
        """Prepare all data directories; each takes a JVM, so they go side by side."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(KafkaBroker.format, self.brokers.values()))

    def start(self) -> None:
        """Start all that do not run and wait until they answer."""
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
        """Of all running brokers together."""
        found = [self.brokers[node_id].usage() for node_id in self.running()]
        return Usage(sum(one.rss_bytes for one in found), sum(one.cpu_seconds for one in found))

    def close(self) -> None:
        """Stop all at once (one after the other would wait for a majority that is gone) and remove what is temporary."""
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
