"""Measure acknowledgments over time around a kill -9 of a broker."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from benchmarks.workloads import CLIENT_TIMEOUT_S, transactional
from odradek.protocol.internal_topics import TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.systems import ClusterSystem

BEFORE_SECONDS = 3.0
"""Duration of the load between the first acknowledgment and the kill."""
FIRST_SECONDS_MAX = 60.0
"""Maximum seconds until the first acknowledgment. A client may find the broker only after a time-out."""
STEADY_SECONDS = 2.0
"""Duration of the load after the first acknowledgment that follows the gap."""
COMPARED_SECONDS = 25.0
"""Minimum duration of the load after the kill if a chart compares systems: longer than the gaps of Apache Kafka."""
GAP_SECONDS_MAX = 40.0
RECORDS_PER_SECOND = 200
IN_SYNC_SECONDS_MAX = 90.0
PAUSE_SECONDS = 0.1
METADATA_SECONDS = 10.0
CALL_SECONDS = 5.0


@dataclass
class Timeline:
    """Times of acknowledgments in seconds after the kill. Times before the kill are negative."""

    acknowledged: list[float] = field(default_factory=list)

    @property
    def gap(self) -> tuple[float, float]:
        """Begin and end of the longest time without an acknowledgment that ends after the kill."""
        gaps = [(earlier, later) for earlier, later in pairwise(self.acknowledged) if later > 0]
        return max(gaps, key=lambda gap: gap[1] - gap[0], default=(0.0, 0.0))

    @property
    def gap_s(self) -> float:
        begin, end = self.gap
        return end - begin


class Acknowledgments:
    """Collect times from the load thread. The thread that kills the broker waits for acknowledgments."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self._arrived = threading.Condition()

    def note(self) -> None:
        with self._arrived:
            self.times.append(time.perf_counter())
            self._arrived.notify_all()

    def fail(self, failure: BaseException) -> None:
        with self._arrived:
            self.failure = failure
            self._arrived.notify_all()

    def await_first(self) -> None:
        """Wait for the first acknowledgment, at most FIRST_SECONDS_MAX."""
        with self._arrived:
            self._arrived.wait_for(lambda: self.times or self.failure is not None, FIRST_SECONDS_MAX)

    def await_steady(self, killed: float, seconds_min: float) -> None:
        """Wait for STEADY_SECONDS of acknowledgments without a gap of half as long, at most GAP_SECONDS_MAX.

        Wait until `seconds_min` after the kill in any case.
        """
        deadline = killed + GAP_SECONDS_MAX
        with self._arrived:
            while time.perf_counter() < deadline and self.failure is None and not self._steady(killed, seconds_min):
                self._arrived.wait(1.0)

    def _steady(self, killed: float, seconds_min: float = 2 * STEADY_SECONDS) -> bool:
        after = [at for at in self.times if at > killed]
        gaps = [after[0]] if after else []
        gaps += [later for earlier, later in pairwise(after) if later - earlier > STEADY_SECONDS / 2]
        return bool(gaps) and after[-1] - max(gaps) > STEADY_SECONDS and after[-1] - killed > seconds_min


def kill_leader(system: ClusterSystem, topic: str, seconds_min: float = 2 * STEADY_SECONDS) -> Timeline:
    """Produce to one partition, and kill its leader. The broker is in sync again at return."""
    node = leader_of(system.bootstrap, topic, 0)
    return around_kill(system, node, lambda acks: send_records(system.bootstrap, topic, acks), seconds_min)


def kill_coordinator(system: ClusterSystem, topic: str, transactional_id: str, seconds_min: float) -> Timeline:
    """Commit one-record transactions, and kill their coordinator. Another broker leads the partition of the records."""
    partitions = len(leaders_of(system.bootstrap, TRANSACTION_STATE))
    index = java_hash(transactional_id) % partitions
    node = leader_of(system.bootstrap, TRANSACTION_STATE, index)
    elsewhere = [index for index, leader in leaders_of(system.bootstrap, topic).items() if leader != node]
    partition = elsewhere[0]
    return around_kill(
        system,
        node,
        lambda acks: commit_records(system.bootstrap, topic, partition, transactional_id, acks),
        seconds_min,
    )


def around_kill(
    system: ClusterSystem, node: int, load: Callable[[Acknowledgments], None], seconds_min: float
) -> Timeline:
    acks = Acknowledgments()

    def run() -> None:
        try:
            load(acks)
        except BaseException as failure:
            acks.fail(failure)

    thread = threading.Thread(target=run)
    thread.start()
    acks.await_first()
    time.sleep(BEFORE_SECONDS)
    killed = time.perf_counter()
    system.kill(node)
    acks.await_steady(killed, seconds_min)
    acks.stopping.set()
    thread.join()
    system.start_node(node)
    await_in_sync(system.bootstrap)
    if acks.failure is not None:
        raise RuntimeError(f"the load during the kill failed: {acks.failure}") from acks.failure
    return Timeline([at - killed for at in acks.times])


def send_records(bootstrap: str, topic: str, acks: Acknowledgments) -> None:
    config = {"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True, "log_level": 0}
    producer = Producer(config)
    lost: list[str] = []

    def delivered(error: object, message: Message) -> None:
        if error is None:
            acks.note()
        else:
            lost.append(str(error))

    began, number = time.perf_counter(), 0
    while not acks.stopping.is_set() and not lost:
        number += 1
        producer.produce(topic, b"x" * 100, partition=0, on_delivery=delivered)
        while (left := began + number / RECORDS_PER_SECOND - time.perf_counter()) > 0:
            producer.poll(left)
        producer.poll(0)
    producer.flush(CLIENT_TIMEOUT_S)
    if lost:
        raise RuntimeError(f"a record was not acknowledged: {lost[0]}")


def commit_records(bootstrap: str, topic: str, partition: int, transactional_id: str, acks: Acknowledgments) -> None:
    producer = transactional(bootstrap, transactional_id)
    while not acks.stopping.is_set():
        producer.begin_transaction()
        producer.produce(topic, b"x" * 100, partition=partition)
        while not ended(producer):
            pass
        acks.note()


def ended(producer: Producer) -> bool:
    """Commit, or abort if the client requires it. Return False if the caller must retry."""
    try:
        producer.commit_transaction(CALL_SECONDS)
    except KafkaException as failed:
        error = failed.args[0]
        if error.txn_requires_abort():
            producer.abort_transaction(CLIENT_TIMEOUT_S)
            return True
        if not error.retriable():
            raise
        return False
    return True


def leaders_of(bootstrap: str, topic: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    found = admin.list_topics(topic, timeout=METADATA_SECONDS).topics[topic].partitions
    return {index: partition.leader for index, partition in found.items()}


def leader_of(bootstrap: str, topic: str, index: int) -> int:
    return leaders_of(bootstrap, topic)[index]


def await_in_sync(bootstrap: str, seconds_max: float = IN_SYNC_SECONDS_MAX) -> None:
    """Wait until all replicas are in sync. Raise RuntimeError after `seconds_max`."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.perf_counter() + seconds_max
    while time.perf_counter() < deadline:
        topics = admin.list_topics(timeout=METADATA_SECONDS).topics.values()
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        if all(len(partition.isrs) == len(partition.replicas) for partition in partitions):
            return
        time.sleep(PAUSE_SECONDS)  # a client must poll: brokers do not notify it of ISR changes
    raise RuntimeError(f"the replicas of the killed broker are not in sync after {seconds_max:.0f} s")


def java_hash(text: str) -> int:
    """Return the absolute value of Java's String.hashCode, by which Kafka selects the coordinator's partition."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return abs(signed) & 0x7FFFFFFF
