"""Records into a topic, with an idempotent producer, and as one transaction where that is asked for."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odradek.client.client import (
    PASSING,
    RETRY_INTERVAL_S,
    TIMEOUT_S,
    TRANSACTION_KEY,
    Cluster,
    Failed,
    Unaskable,
    check,
    patiently,
)
from odradek.client.content import bytes_of, taken, taken_headers
from odradek.client.partitioner import partition_of
from odradek.protocol.batch import build_batch, increment_sequence
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from uuid import UUID

    from odradek.protocol.record import NewRecord

BATCH_RECORDS_MAX = 1_000
BATCH_BYTES_MAX = 512 * 1024
"""Keys and values of what is sent in one go; less than half of what max.message.bytes allows a batch by default."""
PRODUCE_TIMEOUT_MS = 30_000
TRANSACTION_TIMEOUT_MS = 60_000
ALL_REPLICAS = -1
# A transaction by the requests that every broker with transactions serves: partitions are added by name, and its end leaves
# the epoch as it is (KIP-890's newer ones would have to be used together, by the cluster's transaction.version).
ADD_PARTITIONS_UP_TO, PRODUCE_UP_TO, END_UP_TO = 3, 11, 4
LEADERLESS = PASSING | {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT}


@dataclass(frozen=True, slots=True)
class Line:
    """One record to be sent; partition None: by the key, or in turn."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


@dataclass(slots=True)
class Producer:
    """One topic, one producer id; everything that is sent is acknowledged by all in-sync replicas before more is."""

    cluster: Cluster
    topic: str
    transactional_id: str | None = None
    sent: dict[int, list[int]] = field(default_factory=dict)
    """Partition -> first offset, number of records."""
    topic_id: UUID = field(init=False)
    _leaders: dict[int, int] = field(init=False)
    _producer: tuple[int, int] = field(init=False)
    _sequences: dict[int, int] = field(default_factory=dict)
    _added: dict[int, None] = field(default_factory=dict)
    _turn: int = 0

    def __post_init__(self) -> None:
        self._look()
        identity = self.transactional_id
        request = InitProducerIdRequest(transactional_id=identity, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        if identity is None:
            answer = patiently(lambda: self.cluster.any().call(request), lambda answer: answer.error_code)
        else:
            answer = self._coordinated(request)
        check(answer.error_code, "no producer id was given")
        self._producer = (answer.producer_id, answer.producer_epoch)

    def send(self, lines: Iterable[Line]) -> None:
        """Raises Failed; of what came before the failure, some may have been written."""
        for batch in batches(lines):
            by_partition: dict[int, list[NewRecord]] = {}
            now_ms = int(time.time() * 1000)
            for line in batch:
                records = by_partition.setdefault(self._partition(line), [])
                records.append((line.key, line.value, now_ms, line.headers))
            self._add([partition for partition in by_partition if partition not in self._added])
            for partition, records in by_partition.items():
                self._write(partition, records)

    def end(self, *, commit: bool) -> None:
        """Commit the transaction, or abort it. Raises Failed."""
        if self.transactional_id is None or not self._added:
            return
        request = EndTxnRequest(self.transactional_id, *self._producer, committed=commit)
        answer = self._coordinated(request, END_UP_TO)
        check(answer.error_code, f"the transaction was not {'committed' if commit else 'aborted'}")

    def _coordinated(self, request: Any, version_max: int = END_UP_TO) -> Any:
        assert self.transactional_id is not None
        return self.cluster.ask_coordinator(
            self.transactional_id, TRANSACTION_KEY, request, lambda answer: answer.error_code, version_max
        )

    def _look(self) -> None:
        [topic] = self.cluster.refresh([self.topic]).topics
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Failed(f"topic {self.topic} does not exist; make it with: odradek topics create {self.topic}")
        check(topic.error_code, f"topic {self.topic}")
        self.topic_id = topic.topic_id
        self._leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}

    def _partition(self, line: Line) -> int:
        if line.partition is not None:
            if line.partition not in self._leaders:
                raise Failed(f"topic {self.topic} has no partition {line.partition}; it has {len(self._leaders)}")
            return line.partition
        if line.key is not None:
            return partition_of(line.key, len(self._leaders))
        self._turn += 1
        return (self._turn - 1) % len(self._leaders)

    def _add(self, partitions: list[int]) -> None:
        if self.transactional_id is None or not partitions:
            return
        producer_id, epoch = self._producer
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(self.topic, partitions)],
        )

        def code(answer: Any) -> int:
            results = [each for topic in answer.results_by_topic_v3_and_below for each in topic.results_by_partition]
            return next((each.partition_error_code for each in results if each.partition_error_code), ErrorCode.NONE)

        answer = self.cluster.ask_coordinator(
            self.transactional_id, TRANSACTION_KEY, request, code, ADD_PARTITIONS_UP_TO
        )
        check(code(answer), f"{self.topic} was not added to the transaction")
        self._added |= dict.fromkeys(partitions)

    def _write(self, partition: int, records: list[NewRecord]) -> None:
        sequence = self._sequences.get(partition, 0)
        producer_id, epoch = self._producer
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=self.transactional_id is not None,
        )
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(self.topic, self.topic_id, [PartitionProduceData(index=partition, records=batch)])
            ],
        )
        self._sequences[partition] = increment_sequence(sequence, len(records))
        offset = self._acknowledged(partition, request)
        self.sent.setdefault(partition, [offset, 0])[1] += len(records)

    def _acknowledged(self, partition: int, request: ProduceRequest) -> int:
        """The base offset. The same sequence numbers again are written once, so it is sent until a leader has it."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            leader = self._leaders[partition]
            if leader >= 0:
                answer = self.cluster.node(leader).call(request, PRODUCE_UP_TO).responses[0].partition_responses[0]
                if answer.error_code == ErrorCode.NONE:
                    return int(answer.base_offset)
                code, message = answer.error_code, answer.error_message
            else:
                code, message = ErrorCode.LEADER_NOT_AVAILABLE, None
            if code not in LEADERLESS or time.monotonic() > deadline:
                check(code, f"{self.topic}-{partition} was not written", message)
            time.sleep(RETRY_INTERVAL_S)
            self._look()


def batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """What is sent in one go."""
    batch: list[Line] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line.key or b"") + len(line.value or b"")
        if len(batch) >= BATCH_RECORDS_MAX or size >= BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def produce(producer: Producer, lines: Iterator[Line], *, commit: bool, at_once: bool) -> dict[str, Any]:
    """Send all lines, `at_once` each by itself, and end the transaction if there is one; a failure aborts it. Raises Failed."""
    try:
        if at_once:
            for line in lines:
                producer.send([line])
        else:
            producer.send(lines)
    except (Failed, KeyboardInterrupt):
        producer.end(commit=False)
        raise
    producer.end(commit=commit)
    outcome = "none" if producer.transactional_id is None else "committed" if commit else "aborted"
    return {
        "topic": producer.topic,
        "records": sum(count for _, count in producer.sent.values()),
        "transaction": outcome,
        "transactional_id": producer.transactional_id,
        "partitions": [
            {"partition": partition, "first_offset": first, "records": count}
            for partition, (first, count) in sorted(producer.sent.items())
        ],
    }


def lines_of(
    text: Iterable[str],
    headers: tuple[tuple[str, bytes | None], ...],
    partition: int | None,
    *,
    separator: str | None,
    as_json: bool,
) -> Iterator[Line]:
    """A record a line; `headers` are added to each. Raises Failed."""
    for place, each in enumerate(text, 1):
        stripped = each.rstrip("\n")
        line = from_json(stripped, place) if as_json else from_text(stripped, separator, place)
        yield replace(line, headers=(*line.headers, *headers), partition=partition)


def header(pair: str) -> tuple[str, bytes | None]:
    """name=value, or a name alone for none. Raises Unaskable."""
    name, equals, value = pair.partition("=")
    if not name:
        raise Unaskable(f"--header {pair}: expected name=value")
    return name, bytes_of(value, f"--header {name}") if equals else None


def from_json(text: str, place: int) -> Line:
    """A line as ``odradek consume --json`` prints it; what is missing is none. Raises Failed."""
    what = f"line {place}"
    try:
        row = json.loads(text)
    except ValueError as error:
        raise Failed(f"{what}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise Failed(f'{what}: expected {{"key": ..., "value": ..., "headers": [...]}}')
    headers = taken_headers(row.get("headers", []), what)
    return Line(taken(row.get("key"), what), taken(row.get("value"), what), headers)


def from_text(text: str, separator: str | None, place: int) -> Line:
    """A value, or key and value around the separator. Raises Failed."""
    if separator is None:
        return Line(None, bytes_of(text, f"line {place}"))
    key, found, value = text.partition(separator)
    if not found:
        raise Failed(f"line {place}: no {separator!r} between key and value")
    return Line(bytes_of(key, f"line {place}"), bytes_of(value, f"line {place}"))
