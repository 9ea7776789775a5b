"""Groups on three brokers whose coordinators are killed: members continue, and transactions stay atomic."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek import LocalCluster
from odradek.pipeline.cluster.access import Access
from odradek.pipeline.flights.progress_topic import await_stable
from odradek.protocol.hashing import partition_for
from tests.interop.drivers.base import TIMEOUT_S, Fenced, GroupOptions, ProducerOptions
from tests.interop.drivers.confluent import ConfluentDriver
from tests.interop.drivers.line_process import ClientFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.drivers.base import Driver, GroupConsumer, Message, ProducerDriver
    from tests.interop.drivers.confluent import ConfluentMember

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

BROKERS = 3
PARTITIONS = [0, 1]
RECORDS = 400
BATCH = 40
ROUNDS = 9
POLL_S = 0.5
LONGEST_S = 90.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "offsets.topic.num.partitions": 6,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(BROKERS, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def brokers(cluster: LocalCluster) -> LocalCluster:
    """Start the brokers that an earlier test stopped."""
    cluster.start()
    return cluster


def make_topic(cluster: LocalCluster, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, len(PARTITIONS), BROKERS)])[name].result(TIMEOUT_S)
    return name


def coordinator_of(cluster: LocalCluster, group: str) -> int:
    """Return the leader of the group's partition of `__consumer_offsets`."""
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}).list_topics(timeout=TIMEOUT_S)
    partitions = metadata.topics["__consumer_offsets"].partitions
    leader: int = partitions[partition_for(group, len(partitions))].leader
    return leader


def write(cluster: LocalCluster, topic: str, first: int = 0, count: int = RECORDS) -> list[bytes]:
    producer = ConfluentDriver().producer(cluster.bootstrap, ProducerOptions(idempotent=True))
    contents = [b"%06d" % number for number in range(first, first + count)]
    for number, content in enumerate(contents):
        producer.send(topic, content, partition=number % len(PARTITIONS))
    producer.flush()
    return contents


class Processor:
    """Processor that reads one topic and writes another in transactions with the offsets of its group."""

    def __init__(self, driver: Driver, cluster: LocalCluster, source: str, output: str, protocol: str) -> None:
        self._driver = driver
        self._bootstrap = cluster.bootstrap
        self._source = source
        self._output = output
        self._options = GroupOptions(f"g-{source}", protocol)
        self._member: GroupConsumer | None = None
        self._producer: ProducerDriver | None = None
        self.failures = 0

    def step(self) -> None:
        """Process available records in one transaction. After a failure, restart from the committed offsets."""
        try:
            if self._producer is None:
                options = ProducerOptions(transactional_id=f"id-{self._source}")
                self._producer = self._driver.producer(self._bootstrap, options)
                self._producer.init()
            if self._member is None:
                self._member = self._driver.member(self._bootstrap, self._source, self._options)
            messages = self._member.poll(POLL_S)
            if messages:
                self._process(self._producer, self._member, messages)
        except (ClientFailed, Fenced):
            self.failures += 1
            assert self.failures < 30, "the processor does not recover"
            self.close()

    def _process(self, producer: ProducerDriver, member: GroupConsumer, messages: list[Message]) -> None:
        producer.begin()
        for message in messages:
            producer.send(self._output, message.value, partition=message.partition)
        producer.send_offsets(member)
        producer.commit()

    def processed(self) -> int:
        """Return the number of processed inputs, from the committed offsets of the group."""
        if self._member is None:
            return 0
        try:
            return sum(offset or 0 for offset in self._member.committed(PARTITIONS))
        except ClientFailed:
            return 0

    def close(self) -> None:
        member, producer, self._member, self._producer = self._member, self._producer, None, None
        if producer is not None:
            producer.close()
        if member is not None:
            member.close()


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.full), "consumer"])
def test_each_input_has_one_output_when_the_coordinator_is_killed(
    brokers: LocalCluster, drivers: Callable[[str], Driver], protocol: str
) -> None:
    """Use the Java client: librdkafka 2.16 may wait without end in send_offsets_to_transaction (docs/clients.md)."""
    source = make_topic(brokers, f"in-{protocol}-{time.time_ns():x}")
    output = make_topic(brokers, f"out-{protocol}-{time.time_ns():x}")
    processor = Processor(drivers("Java 4.4"), brokers, source, output, protocol)
    contents: list[bytes] = []
    deadline = time.monotonic() + LONGEST_S
    killed = -1
    for number in range(ROUNDS):
        contents += write(brokers, source, len(contents), BATCH)
        if number == ROUNDS // 3:
            killed = coordinator_of(brokers, f"g-{source}")
            brokers.kill(killed)
        if number == 2 * ROUNDS // 3:
            brokers.start(killed)
        while processor.processed() < len(contents):
            assert time.monotonic() < deadline, (processor.processed(), len(contents), processor.failures)
            processor.step()
    processor.close()
    await_stable(Access(brokers.bootstrap), {output: len(PARTITIONS)})
    processed = ConfluentDriver().consume(brokers.bootstrap, output, PARTITIONS, "read_committed")
    assert sorted(message.value or b"" for message in processed) == contents


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.full)])
def test_members_continue_when_their_coordinator_is_killed(brokers: LocalCluster, protocol: str) -> None:
    source = make_topic(brokers, f"shared-{protocol}-{time.time_ns():x}")
    driver, group = ConfluentDriver(), f"g-{source}"
    commit_beginnings(brokers, group, source)
    members = [driver.member(brokers.bootstrap, source, GroupOptions(group, protocol)) for _ in PARTITIONS]
    poll_until_shared(members)
    killed = coordinator_of(brokers, group)
    brokers.kill(killed)
    contents = write(brokers, source)
    received: list[bytes] = []
    deadline = time.monotonic() + LONGEST_S
    while len(received) < RECORDS:
        assert time.monotonic() < deadline, len(received)
        received += [message.value or b"" for member in members for message in member.poll(POLL_S)]
    assert sorted(received) == contents
    assert coordinator_of(brokers, group) != killed
    for member in members:
        member.commit()
    members[0].close()
    poll_until_shared(members[1:])
    assert members[1].committed(PARTITIONS) == [RECORDS // 2, RECORDS // 2]
    members[1].close()
    brokers.start(killed)


def commit_beginnings(cluster: LocalCluster, group: str, topic: str) -> None:
    """Commit an offset for each partition, so that no member requests the beginning of a partition.

    librdkafka 2.16 repeats that request after the partition was revoked, and fetches from there (docs/clients.md).
    """
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, partition, 0) for partition in PARTITIONS], asynchronous=False)
    consumer.close()


def poll_until_shared(members: list[ConfluentMember]) -> None:
    """Poll until the partitions are distributed evenly over the members."""
    deadline = time.monotonic() + LONGEST_S
    while (
        sorted(partition for member in members for partition in member.assigned()) != PARTITIONS
        or len({len(member.assigned()) for member in members}) != 1
    ):
        assert time.monotonic() < deadline, [member.assigned() for member in members]
        for member in members:
            assert member.poll(POLL_S) == []
