"""Groups on three real brokers: members go on, and transactions stay whole, when the broker dies that coordinates them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from coordinator.hashing import partition_for
from odradek import LocalCluster
from tests.interop.drivers.base import TIMEOUT_S, Fenced, GroupOptions, Message, ProducerOptions
from tests.interop.drivers.confluent import ConfluentDriver, as_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.drivers.confluent import ConfluentMember, ConfluentProducer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

BROKERS = 3
BOTH = [0, 1]
RECORDS = 400
BATCH = 40
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
def three(cluster: LocalCluster) -> LocalCluster:
    """All brokers run."""
    for node_id in cluster.node_ids:
        if not cluster.is_running(node_id):
            cluster.start(node_id)
    return cluster


def make_topic(cluster: LocalCluster, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, len(BOTH), BROKERS)])[name].result(TIMEOUT_S)
    return name


def coordinator_of(cluster: LocalCluster, group: str) -> int:
    """The broker that leads the group's partition of `__consumer_offsets`."""
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}).list_topics(timeout=TIMEOUT_S)
    partitions = metadata.topics["__consumer_offsets"].partitions
    leader: int = partitions[partition_for(group, len(partitions))].leader
    return leader


def write(cluster: LocalCluster, topic: str) -> list[bytes]:
    producer = ConfluentDriver().producer(cluster.bootstrap, ProducerOptions(idempotent=True))
    contents = [b"%06d" % number for number in range(RECORDS)]
    for number, content in enumerate(contents):
        producer.send(topic, content, partition=number % len(BOTH))
    producer.flush()
    return contents


class Processor:
    """Reads one topic and writes another, a few records in a transaction, with the offsets of its group in it."""

    def __init__(self, cluster: LocalCluster, source: str, output: str, protocol: str) -> None:
        self._bootstrap = cluster.bootstrap
        self._source = source
        self._output = output
        self._options = GroupOptions(f"g-{source}", protocol)
        self._driver = ConfluentDriver()
        self._member: ConfluentMember | None = None
        self._producer: ConfluentProducer | None = None
        self.failures = 0
        self.processed = 0

    def step(self) -> None:
        """One transaction, if there is something to process. After a failure everything begins anew from what is committed."""
        try:
            if self._producer is None:
                options = ProducerOptions(transactional_id=f"id-{self._source}")
                self._producer = self._driver.producer(self._bootstrap, options)
                self._producer.init()
            if self._member is None:
                self._member = self._driver.member(self._bootstrap, self._source, self._options)
            polled = self._member.consumer.consume(BATCH, POLL_S)
            messages = [as_message(message) for message in polled if message.error() is None]
            if messages:
                self._process(self._producer, self._member, messages)
        except (KafkaException, Fenced, AssertionError):
            self.failures += 1
            assert self.failures < 30, "it never goes on"
            self.close()

    def _process(self, producer: ConfluentProducer, member: ConfluentMember, messages: list[Message]) -> None:
        producer.begin()
        for message in messages:
            producer.send(self._output, message.value, partition=message.partition)
        producer.send_offsets(member)
        producer.commit()
        self.processed += len(messages)

    def committed(self) -> list[int | None]:
        assert self._member is not None
        return self._member.committed(BOTH)

    def close(self) -> None:
        member, producer, self._member, self._producer = self._member, self._producer, None, None
        if producer is not None:
            producer.close()
        if member is not None:
            member.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_input_makes_one_output_through_the_death_of_the_coordinator(three: LocalCluster, protocol: str) -> None:
    source = make_topic(three, f"in-{protocol}-{time.time_ns():x}")
    output = make_topic(three, f"out-{protocol}-{time.time_ns():x}")
    contents = write(three, source)
    processor = Processor(three, source, output, protocol)
    deadline = time.monotonic() + LONGEST_S
    killed = -1
    while processor.processed < RECORDS or killed < 0:
        assert time.monotonic() < deadline, (processor.processed, processor.failures)
        processor.step()
        if killed < 0 and processor.processed >= RECORDS // 4:
            killed = coordinator_of(three, f"g-{source}")
            three.kill(killed)
    three.start(killed)
    while (told := processor.committed()) != [RECORDS // 2, RECORDS // 2]:
        assert time.monotonic() < deadline, told
        processor.step()
    processor.close()
    processed = ConfluentDriver().consume(three.bootstrap, output, BOTH, "read_committed")
    assert sorted(message.value or b"" for message in processed) == contents


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_go_on_when_their_coordinator_dies(three: LocalCluster, protocol: str) -> None:
    source = make_topic(three, f"shared-{protocol}-{time.time_ns():x}")
    driver, group = ConfluentDriver(), f"g-{source}"
    members = [driver.member(three.bootstrap, source, GroupOptions(group, protocol)) for _ in BOTH]
    until_shared(members)
    killed = coordinator_of(three, group)
    three.kill(killed)
    contents = write(three, source)
    found: list[bytes] = []
    deadline = time.monotonic() + LONGEST_S
    while len(found) < RECORDS:
        assert time.monotonic() < deadline, len(found)
        found += [message.value or b"" for member in members for message in member.poll(POLL_S)]
    assert sorted(found) == contents
    assert coordinator_of(three, group) != killed
    for member in members:
        member.commit()
    members[0].close()
    until_shared(members[1:])
    assert members[1].committed(BOTH) == [RECORDS // 2, RECORDS // 2]
    members[1].close()
    three.start(killed)


def until_shared(members: list[ConfluentMember]) -> None:
    """Every partition has one member, and every member as many as the next."""
    deadline = time.monotonic() + LONGEST_S
    while (
        sorted(partition for member in members for partition in member.assigned()) != BOTH
        or len({len(member.assigned()) for member in members}) != 1
    ):
        assert time.monotonic() < deadline, [member.assigned() for member in members]
        for member in members:
            assert member.poll(POLL_S) == []
