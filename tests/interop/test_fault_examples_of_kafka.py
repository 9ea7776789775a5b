"""Examples of Kafka's fault proxy (KAFKA-21074, pull request 23438 of apache/kafka) with the rules of `kafka.faults`.

docs/testing.md has a table of them. The name of a test begins with the name of the method or of the test in Kafka.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from odradek.testing.kafka import Kafka
from odradek.testing.kafka_cluster import KafkaCluster
from tests.interop.drivers.java import java_command
from tests.interop.drivers.line_process import LineProcess
from tests.interop.test_streams import SOURCE as WORD_COUNT
from tests.support.jars import PREVIOUS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.full, pytest.mark.timeout(180)]

DELAY_MS = 300
RECORDS = 50
LONGEST_S = 60.0
STREAMS_S = 120.0
"""Time limit for an application of Kafka Streams, which starts a JVM."""
FAST_RETRIES = {"retry.backoff.ms": 20, "retry.backoff.max.ms": 50}
CONVERGENCE_RECORDS = 25


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(settings={"group.min.session.timeout.ms": "100"}) as cluster:
        yield cluster


@pytest.fixture
def kafka(cluster: KafkaCluster) -> Iterator[Kafka]:
    yield Kafka(cluster, "test")
    errors = cluster.faults.errors
    cluster.reset()
    assert errors == []


def producer(kafka: Kafka, **settings: Any) -> Producer:
    """Return an idempotent producer."""
    idempotence = {"enable.idempotence": True}
    return Producer(kafka.client_config("confluent-kafka") | FAST_RETRIES | idempotence | settings)


def transactional(kafka: Kafka) -> Producer:
    """Return a producer that has begun a transaction."""
    created = producer(kafka, **{"transactional.id": kafka.transactional_id()})
    created.init_transactions(LONGEST_S)
    created.begin_transaction()
    return created


def send(sender: Producer, topic: str, *values: bytes) -> None:
    for value in values:
        sender.produce(topic, value, partition=0)
        assert sender.flush(LONGEST_S) == 0


def consumed(kafka: Kafka, topic: str, count: int, **settings: Any) -> list[bytes | None]:
    """Read `count` records of a topic with a group."""
    options = {"group.id": kafka.group(), "auto.offset.reset": "earliest"} | settings
    consumer = Consumer(kafka.client_config("confluent-kafka") | options)
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    deadline = time.monotonic() + LONGEST_S
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


# ---- usage in the description of the class --------------------------------------------------------------------------


def test_inject_error_end_txn_concurrent_transactions_once(kafka: Kafka) -> None:
    topic, sender = kafka.topic(), transactional(kafka)
    rule = kafka.faults.on("EndTxn", nth=1).error("CONCURRENT_TRANSACTIONS")
    sender.produce(topic, b"42")
    sender.commit_transaction(LONGEST_S)
    assert (rule.injected, rule.matched) == (1, 2)
    assert kafka.values(topic) == [b"42"]


def test_inject_error_produce_not_enough_replicas_on_call_2(kafka: Kafka) -> None:
    topic, sender = kafka.topic(), producer(kafka)
    rule = kafka.faults.on("Produce", topic=topic, nth=2).error("NOT_ENOUGH_REPLICAS")
    send(sender, topic, b"0", b"1", b"2")
    assert (rule.injected, rule.matched) == (1, 4)
    assert kafka.values(topic) == [b"0", b"1", b"2"]


def test_disconnect_on_end_txn_once(kafka: Kafka) -> None:
    """Close the connection in place of the response, after the transaction has ended: the gap of a commit."""
    topic, sender = kafka.topic(), transactional(kafka)
    rule = kafka.faults.on("EndTxn", times=1).disconnect("after")
    sender.produce(topic, b"42")
    sender.commit_transaction(LONGEST_S)
    assert rule.injected == 1
    assert kafka.values(topic) == [b"42"]


def test_delay_on_fetch_every_time(kafka: Kafka) -> None:
    topic = kafka.topic()
    send(producer(kafka), topic, b"42")
    rule = kafka.faults.on("Fetch", client_id="slow").delay(DELAY_MS)
    began = time.monotonic()
    assert consumed(kafka, topic, 1, **{"client.id": "slow"}) == [b"42"]
    assert time.monotonic() - began >= DELAY_MS / 1_000
    assert rule.injected == rule.matched >= 1


def test_inject_error_for_client_restore_with_probability(kafka: Kafka) -> None:
    """Fault the fetches of one client. Other clients read as usual."""
    topic = kafka.topic()
    send(producer(kafka), topic, b"42")
    faults = kafka.faults.on("Fetch", client_id="*restore*", probability=0.3, seed=1).error("OFFSET_OUT_OF_RANGE")
    others = kafka.faults.on("Fetch", client_id="main").observe()
    while not faults.injected:
        assert consumed(kafka, topic, 1, **{"client.id": "app-restore-1"}) == [b"42"]
    assert consumed(kafka, topic, 1, **{"client.id": "main"}) == [b"42"]
    assert others.seen > 0
    assert {each.request.client_id for each in kafka.faults.log} == {"app-restore-1"}


def test_blackhole_client_is_evicted_by_session_timeout(kafka: Kafka) -> None:
    topic, group = kafka.topic(partitions=2), kafka.group()
    options = {"group.id": group, "session.timeout.ms": 1_500, "heartbeat.interval.ms": 200}
    config = kafka.client_config("confluent-kafka") | options
    survivor = Consumer(config | {"client.id": "survivor"})
    victim = Consumer(config | {"client.id": "victim-1"})
    for member in (survivor, victim):
        member.subscribe([topic])

    def poll_until(*wanted: tuple[Consumer, int]) -> None:
        deadline = time.monotonic() + LONGEST_S
        while any(len(member.assignment()) != count for member, count in wanted):
            assert time.monotonic() < deadline
            for member, _ in wanted:
                member.poll(0.1)

    poll_until((survivor, 1), (victim, 1))
    blackhole = kafka.faults.on(client_id="*victim*").disconnect("before")
    poll_until((survivor, 2))
    assert blackhole.injected >= 1
    blackhole.remove()  # clearFaults: it is reversible
    poll_until((survivor, 1), (victim, 1))
    for member in (survivor, victim):
        member.close()


def test_clear_faults_and_remove(kafka: Kafka) -> None:
    topic = kafka.topic()
    first = kafka.faults.on("Produce", topic=topic).error("POLICY_VIOLATION")
    second = kafka.faults.on("Produce", topic=topic).error("INVALID_RECORD")
    for expected in ("POLICY_VIOLATION", "INVALID_RECORD"):
        errors: list[str] = []

        def failed(error: KafkaError | None, _: object, errors: list[str] = errors) -> None:
            errors.append(error.name() if error else "")

        sender = producer(kafka, **{"enable.idempotence": False})
        sender.produce(topic, b"1", on_delivery=failed)
        sender.flush(LONGEST_S)
        assert errors == [expected]
        first.remove()
    kafka.faults.clear()
    send(producer(kafka), topic, b"42")
    assert (first.injected, second.injected, second.matched) == (1, 1, 2)
    assert kafka.values(topic) == [b"42"]


def test_unsupported_injection_fails_at_registration(kafka: Kafka) -> None:
    with pytest.raises(ValueError, match="did you mean"):
        kafka.faults.on("EndTransaction")
    with pytest.raises(ValueError, match="did you mean"):
        kafka.faults.on("EndTxn").error("INVALID_TRANSACTION")


# ---- integration tests of the pull request --------------------------------------------------------------------------


def test_should_delay_a_single_produce_response(kafka: Kafka) -> None:
    topic, sender = kafka.topic(), producer(kafka)
    delay = kafka.faults.on("Produce", topic=topic, nth=1).delay(DELAY_MS)
    began = time.monotonic()
    send(sender, topic, b"v0")
    assert time.monotonic() - began >= DELAY_MS / 1_000
    send(sender, topic, b"v1")
    assert (delay.injected, delay.matched) == (1, 2)
    assert kafka.values(topic) == [b"v0", b"v1"]


def test_producer_retries_around_injected_produce_error_and_consumer_reads_all(kafka: Kafka) -> None:
    topic = kafka.topic()
    rule = kafka.faults.on("Produce", topic=topic, times=1).error("NOT_ENOUGH_REPLICAS")
    values = [b"v%d" % number for number in range(RECORDS)]
    send(producer(kafka), topic, *values)
    assert rule.injected == 1
    assert consumed(kafka, topic, RECORDS) == values


def test_should_stay_exactly_once_when_commit_is_fenced_once(kafka: Kafka, tmp_path: Path) -> None:
    """Kafka Streams re-initializes a task whose first commit is fenced, and counts exactly."""
    source, output = kafka.topic("in", partitions=2), kafka.topic("out", partitions=2)
    fence = kafka.faults.on("EndTxn", nth=1).error("PRODUCER_FENCED")
    properties = {
        "application.id": kafka.group("fault-example"),
        "bootstrap.servers": kafka.bootstrap,
        "state.dir": str(tmp_path),
        "processing.guarantee": "exactly_once_v2",
        "commit.interval.ms": 100,
        "statestore.cache.max.bytes": 0,
        "consumer.auto.offset.reset": "earliest",
    }
    named = (f"{name}={value}" for name, value in properties.items())
    application = LineProcess(*java_command(PREVIOUS), str(WORD_COUNT), source, output, *named)
    sender = producer(kafka)
    for number in range(RECORDS):
        sender.produce(source, b"k%d" % (number % 3), partition=number % 2)
    sender.flush(LONGEST_S)
    counts: defaultdict[bytes | None, list[int]] = defaultdict(list)
    deadline = time.monotonic() + STREAMS_S
    while sum(map(max, counts.values())) < RECORDS:
        assert time.monotonic() < deadline, counts
        counts.clear()
        for record in kafka.records(output):
            counts[record.key].append(int(record.value or b"0"))
    application.close()
    assert fence.injected == 1
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in counts.values())


def test_should_survive_single_transient_commit_error(kafka: Kafka) -> None:
    for name in ("CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS"):
        topic, sender = kafka.topic(), transactional(kafka)
        with kafka.faults.on("EndTxn", times=1).error(name) as rule:
            sender.produce(topic, b"1")
            sender.commit_transaction(LONGEST_S)
            assert rule.injected == 1
        assert kafka.values(topic) == [b"1"]


def test_should_converge_under_continuous_commit_fault_window(kafka: Kafka) -> None:
    """Copy records in transactions while commits fail with a probability. No record is lost or duplicated."""
    source, output, group = kafka.topic(), kafka.topic(), kafka.group()
    values = [b"%d" % number for number in range(CONVERGENCE_RECORDS)]
    send(producer(kafka), source, *values)
    chaos = kafka.faults.on("EndTxn", probability=0.3, seed=7).error("COORDINATOR_LOAD_IN_PROGRESS")
    sender = producer(kafka, **{"transactional.id": kafka.transactional_id()})
    sender.init_transactions(LONGEST_S)
    consumer = Consumer(kafka.client_config("confluent-kafka") | {"group.id": group, "enable.auto.commit": False})
    consumer.assign([TopicPartition(source, 0, 0)])
    for _ in values:
        message = consumer.poll(LONGEST_S)
        assert message is not None
        sender.begin_transaction()
        sender.produce(output, message.value())
        offsets = consumer.position(consumer.assignment())
        sender.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        while True:
            try:
                sender.commit_transaction(LONGEST_S)
                break
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise
    chaos.remove()  # close the window
    consumer.close()
    assert chaos.injected >= 1
    assert kafka.values(output) == values
    assert kafka.cluster.committed_offsets(group) == {(source, 0): CONVERGENCE_RECORDS}
