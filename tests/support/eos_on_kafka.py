"""The exactly-once campaign on Apache Kafka: `python -m tests.support.eos_on_kafka --mode kafka`."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek.client import wait_until_in_sync
from odradek.pipeline.cluster.access import Access
from odradek.pipeline.eos_campaign import main
from tests.support.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from odradek.pipeline.eos.plan import Mode

BROKERS = 3
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "broker.session.timeout.ms": "6000",
}
"""Few partitions of internal topics, so that three JVMs on two cores elect their leaders in seconds."""


class KafkaBrokers:
    """Apache Kafka brokers, with the interface that the campaign needs."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self.access = Access(cluster.bootstrap)

    def pids(self) -> Mapping[int, int]:
        return {node_id: self._cluster.pid(node_id) for node_id in self._cluster.running()}

    def kill(self, node_id: int, pids: Mapping[int, int]) -> None:
        self._cluster.kill(node_id)

    def restart(self, node_id: int) -> None:
        self._cluster.start_node(node_id)

    def await_in_sync(self, stopped: threading.Event) -> None:
        asyncio.run(wait_until_in_sync(self.access.bootstrap, len(self._cluster.brokers)))


@contextmanager
def kafka_brokers(mode: Mode, out: Path) -> Iterator[KafkaBrokers]:
    with KafkaCluster.local(BROKERS, SETTINGS) as cluster:
        yield KafkaBrokers(cluster)


if __name__ == "__main__":
    sys.exit(main(brokers=kafka_brokers))
