"""A replica of a compacted topic that missed the end of a transaction: Odradek and Apache Kafka (decision 0102).

1. A transaction is open when broker 3 fails. Its producer aborts it, and remains idle.
2. Compaction on the leader removes the records of the transaction, and then the record of its marker. The batch of the
   marker stays, because it contains the last epoch of the producer. Only TV2 has a new epoch in each marker.
3. Broker 3 returns and fetches that batch. It still has the records of the transaction. Then it becomes the leader.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from odradek import LocalCluster
from odradek.pipeline.cluster.access import Access
from odradek.protocol.batch import iter_batches
from tests.chaos.admin_requests import admin_client, list_end_offsets
from tests.interop.drivers.base import ProducerOptions
from tests.support.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from odradek.protocol.batch import BatchHeader
    from tests.interop.drivers.base import Driver

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

BROKERS = 3
TOPIC = "t"
PARTITION = (TOPIC, 0)
TIMEOUT_S = 60.0
PAUSE_S = 0.1
"""Pause between two requests. Each record after a pause of `segment.ms` begins a segment."""
SETTINGS = {"log.cleaner.backoff.ms": "100", "broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
COMPACTED = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "0",
    "min.cleanable.dirty.ratio": "0",
    "segment.ms": "100",
}


@dataclass(frozen=True)
class System:
    """Operations on the brokers of either system."""

    bootstrap: str
    kill: Callable[[int], None]
    start: Callable[[int], None]
    data: Callable[[int], Path]

    def batches(self, node_id: int) -> list[BatchHeader]:
        """Return the batches in the files of the partition on that broker."""
        while True:
            segments = sorted((self.data(node_id) / f"{TOPIC}-0").glob("*.log"))
            with suppress(FileNotFoundError):  # compaction has replaced a segment since
                return [header for segment in segments for header, _ in iter_batches(segment.read_bytes())]


@contextmanager
def odradek() -> Iterator[System]:
    with LocalCluster(BROKERS, settings=SETTINGS) as cluster:
        yield System(cluster.bootstrap, cluster.kill, cluster.start, cluster.directory.data)


@contextmanager
def kafka() -> Iterator[System]:
    with KafkaCluster.local(BROKERS, SETTINGS) as cluster:
        yield System(
            cluster.bootstrap, cluster.kill, cluster.start_node, lambda node_id: cluster.brokers[node_id].data_directory
        )


def await_true(condition: Callable[[], bool], what: str) -> None:
    """Repeat a request until its response meets the condition: brokers do not notify clients of these changes."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"not after {TIMEOUT_S:.0f} s: {what}"
        time.sleep(PAUSE_S)


def produce(producer: Producer, key: bytes) -> None:
    producer.produce(TOPIC, b"v", key, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def end_offsets_after_return(system: System, java: Driver) -> tuple[int, int]:
    """Return last stable offset and high watermark when broker 3, which missed the end of a transaction, leads."""
    admin = admin_client(Access(system.bootstrap), "missed-end")

    def partition() -> tuple[int, list[int]]:
        """Return the leader and the ISR."""
        found = admin.list_topics(TOPIC, TIMEOUT_S).topics[TOPIC].partitions[0]
        return found.leader, sorted(found.isrs)

    topic = NewTopic(TOPIC, 1, replica_assignment=[[1, 3, 2]], config=COMPACTED)
    admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
    plain = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 0, "log_level": 0})
    transactional = java.producer(system.bootstrap, ProducerOptions(transactional_id="missed-end"))
    transactional.init()
    transactional.begin()
    transactional.send(TOPIC, b"v", key=b"key")
    transactional.flush()
    await_true(lambda: partition() == (1, [1, 2, 3]), "broker 3 has the record")
    system.kill(3)
    await_true(lambda: partition() == (1, [1, 2]), "broker 3 leaves the ISR")
    transactional.abort()

    def is_compacted() -> bool:
        write(plain)  # compaction excludes the active segment
        return not any(header.is_transactional and header.record_count for header in system.batches(1))

    await_true(is_compacted, "compaction removes the records of the transaction and of its marker")
    system.start(3)
    await_true(lambda: partition()[1] == [1, 2, 3], "broker 3 joins the ISR")
    system.kill(1)
    await_true(lambda: partition()[0] == 3, "broker 3 leads")
    write(plain)
    transactional.close()
    ends = [list_end_offsets(admin, [PARTITION], committed=committed)[PARTITION] for committed in (True, False)]
    stable, watermark = (end.result(TIMEOUT_S).offset for end in ends)
    return stable, watermark


def write(producer: Producer) -> None:
    """Write the key of all records that are not transactional."""
    producer.produce(TOPIC, b"v", b"other", partition=0)
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.parametrize(
    ("system", "is_ended"),
    [pytest.param(odradek, True, id="odradek"), pytest.param(kafka, False, id="kafka", marks=pytest.mark.full)],
)
def test_emptied_marker_ends_the_transaction_on_a_replica_of_odradek_only(
    system: Callable[[], AbstractContextManager[System]], is_ended: bool, drivers: Callable[[str], Driver]
) -> None:
    """A follower of Odradek truncates its log at the transaction when it fetches the emptied marker (`EmptyMarkers`).

    Apache Kafka ignores an empty control batch (`ProducerAppendInfo.append`): it assumes that compaction has removed
    the whole transaction from the log. The last stable offset then stays at the first record of the transaction.
    """
    with system() as running:
        stable, watermark = end_offsets_after_return(running, drivers("Java 4.4"))
    assert watermark > 0
    assert stable == (watermark if is_ended else 0)
