"""Brokers with few file descriptors: floods of connections, and no free descriptor."""

from __future__ import annotations

import resource
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek import BrokerFailed, LocalCluster
from odradek.local.processes import BrokerCommand
from odradek.storage.disk.descriptors import RESERVED_DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

TIMEOUT_S = 60.0
LIMIT = 256
"""RLIMIT_NOFILE of the brokers."""
FEW = 60
"""RLIMIT_NOFILE that does not suffice for as many partitions."""
FLOOD = 800
"""Connections of the flood, more than three times LIMIT."""
THREADS = 16
"""Threads that open them. A thread waits for a second whenever the queue of the listener is full."""
SEGMENT_BYTES = 1024 * 1024
VALUE = b"v" * 50_000


@pytest.fixture
def few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start all brokers with RLIMIT_NOFILE = LIMIT."""
    limit_open_files(monkeypatch, LIMIT)


def limit_open_files(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Start brokers with RLIMIT_NOFILE = `limit`."""
    argv = BrokerCommand.argv
    monkeypatch.setattr(
        BrokerCommand, "argv", lambda self: ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *argv(self)]
    )


@contextmanager
def flood(endpoint: str, count: int) -> Iterator[None]:
    """Open connections that send nothing. A connection that the broker closes stays open on this side."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(2 * count, hard)), hard))
    host, _, port = endpoint.rpartition(":")
    try:
        with ExitStack() as opened, ThreadPoolExecutor(THREADS) as threads:
            connect = partial(socket.create_connection, (host, int(port)), TIMEOUT_S)
            for connection in [threads.submit(connect) for _ in range(count)]:
                opened.enter_context(connection.result())
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def produce(producer: Producer, topic: str, partition: int, *values: bytes) -> None:
    """Produce records one after the other, and wait for their acknowledgment."""
    failures: list[object] = []
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: failures.append(error))
        producer.flush(TIMEOUT_S)
    assert failures == [None] * len(values)


def create(admin: AdminClient, topic: str, partitions: int, replicas: int, **settings: str) -> None:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=config)
    admin.create_topics([new], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)


def led_by(admin: AdminClient, topic: str, node_id: int) -> int:
    """Return a partition of the topic whose leader is that broker."""
    partitions = admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions.values()
    return next(partition.id for partition in partitions if partition.leader == node_id)


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def count_records(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = 0
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            consumer.close()
            return count
        count += 1


@pytest.mark.usefixtures("few_descriptors")
def test_flood_of_connections_leaves_descriptors_to_logs_and_brokers() -> None:
    with LocalCluster(brokers=3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        flooded, *others = cluster.node_ids
        create(admin, "before", 3, 3, min_insync_replicas="3")
        before = led_by(admin, "before", flooded)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        produce(producer, "before", before, b"1")
        with flood(cluster.plan.endpoint(flooded), FLOOD):
            assert descriptors(cluster.pid(flooded)) < LIMIT - RESERVED_DESCRIPTORS
            create(admin, "during", 3, 3, min_insync_replicas="3")
            another = Producer({"bootstrap.servers": cluster.plan.endpoint(flooded)})
            produce(another, "during", led_by(admin, "during", flooded), b"1", b"2", b"3")
            produce(producer, "before", before, b"2")
            cluster.restart(others[0])  # its new connections to the flooded broker are accepted
            for partition in range(3):
                produce(producer, "during", partition, b"4")
        assert f"limit={LIMIT}" in cluster.log(flooded)
        for node_id in cluster.node_ids:
            assert "partition offline" not in cluster.log(node_id)
            assert "Traceback" not in cluster.log(node_id)


def test_broker_without_free_descriptors_refuses_and_recovers_without_a_restart() -> None:
    with LocalCluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        create(admin, "t", 1, 1, segment_bytes=str(SEGMENT_BYTES))
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
        produce(producer, "t", 0, VALUE)
        directory = cluster.directory.data(1) / "t-0"
        pid = cluster.pid(1)
        unlimited = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (free_descriptor(pid), unlimited[1]))
        produce(producer, "t", 0, *[VALUE] * 100)
        during = len(list(directory.glob("*.log")))
        create(admin, "later", 1, 1)
        waiting: list[object] = []
        producer.produce("later", b"1", on_delivery=lambda error, _: waiting.append(error))
        assert producer.flush(2.0) == 1, "the log of the new topic waits for a descriptor"
        log = cluster.log(1)
        assert "roll postponed: no resources" in log
        assert "operation='open the log'" in log
        resource.prlimit(pid, resource.RLIMIT_NOFILE, unlimited)
        producer.flush(TIMEOUT_S)
        assert waiting == [None]
        produce(producer, "t", 0, *[VALUE] * 30)
        assert len(list(directory.glob("*.log"))) > during
        assert "partition offline" not in cluster.log(1)
        assert "Traceback" not in cluster.log(1)
        cluster.kill(1)
        cluster.start(1)
        assert (count_records(cluster.bootstrap, "t"), count_records(cluster.bootstrap, "later")) == (131, 1)


def test_start_with_too_few_descriptors_fails_and_names_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster() as cluster:
        create(AdminClient({"bootstrap.servers": cluster.bootstrap}), "t", FEW, 1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for partition in range(FEW):
            produce(producer, "t", partition, b"x")  # creates the log
        cluster.stop(1)
        with (
            monkeypatch.context() as patched,
            pytest.raises(BrokerFailed, match=r"Too many open files; raise the limit"),
        ):
            limit_open_files(patched, FEW)
            cluster.start(1)
        cluster.start(1)
        assert "log not opened" not in cluster.log(1)


def free_descriptor(pid: int) -> int:
    """Return the lowest number that is no descriptor of the process: with it as the limit, no descriptor is free."""
    used = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    return next(number for number in range(len(used) + 1) if number not in used)
