"""Driver of kafka-python."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors
from kafka.structs import OffsetAndMetadata

from tests.interop.drivers.base import TIMEOUT_S, Fenced, GroupOptions, Message, ProducerOptions

if TYPE_CHECKING:
    from collections.abc import Callable

FENCED = tuple(
    getattr(kafka_errors, name)
    for name in ("ProducerFencedError", "InvalidProducerEpochError")
    if hasattr(kafka_errors, name)
)


class KafkaPythonProducer:
    def __init__(self, bootstrap: str, options: ProducerOptions) -> None:
        extra: dict[str, Any] = {}
        if options.transactional_id is not None:
            extra["transactional_id"] = options.transactional_id
            extra["transaction_timeout_ms"] = options.transaction_timeout_ms
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if options.codec == "none" else options.codec,
            enable_idempotence=options.idempotent or options.transactional_id is not None,
            acks="all",
            linger_ms=5,
            **extra,
        )
        self._futures: list[Any] = []

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        timestamp: int | None = None,
    ) -> None:
        self._futures.append(
            fencing(
                lambda: self._producer.send(
                    topic, value, key=key, partition=partition, headers=list(headers), timestamp_ms=timestamp
                )
            )
        )

    def flush(self) -> None:
        fencing(lambda: self._producer.flush(TIMEOUT_S))
        futures, self._futures = self._futures, []
        for future in futures:
            fencing(partial(future.get, TIMEOUT_S))

    def init(self) -> None:
        fencing(self._producer.init_transactions)

    def begin(self) -> None:
        fencing(self._producer.begin_transaction)

    def commit(self) -> None:
        fencing(self._producer.commit_transaction)

    def abort(self) -> None:
        fencing(self._producer.abort_transaction)
        self._futures.clear()

    def send_offsets(self, consumer: Any) -> None:
        member: KafkaConsumer = consumer.consumer
        positions = {
            partition: OffsetAndMetadata(member.position(partition), "", -1) for partition in member.assignment()
        }
        fencing(lambda: self._producer.send_offsets_to_transaction(positions, member.group_metadata()))

    def close(self) -> None:
        self._producer.close(timeout=1.0)


def fencing(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except FENCED as fenced:
        raise Fenced(repr(fenced)) from fenced
    except kafka_errors.KafkaError as failed:
        if any(isinstance(cause, FENCED) for cause in (failed.__cause__, *failed.args)):
            raise Fenced(repr(failed)) from failed
        raise


class KafkaPythonMember:
    def __init__(self, bootstrap: str, topic: str, options: GroupOptions) -> None:
        assert options.protocol == "classic", "kafka-python supports only the classic protocol"
        self._topic = topic
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=options.group,
            group_instance_id=options.instance,
            isolation_level=options.isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=options.session_ms,
            heartbeat_interval_ms=500,
        )
        # A member that joins without the metadata of the topic joins again when it has received them. If poll times out
        # during that join, the client loses the join (docs/clients.md, kafka-python).
        assert self.consumer.partitions_for_topic(topic)

    def poll(self, seconds: float) -> list[Message]:
        polled = self.consumer.poll(timeout_ms=int(seconds * 1_000))
        return [as_message(record) for records in polled.values() for record in records]

    def assigned(self) -> list[int]:
        return sorted(partition.partition for partition in self.consumer.assignment())

    def commit(self) -> None:
        self.consumer.commit()

    def committed(self, partitions: list[int]) -> list[int | None]:
        return [self.consumer.committed(TopicPartition(self._topic, partition)) for partition in partitions]

    def close(self) -> None:
        self.consumer.close(autocommit=False)


class KafkaPythonDriver:
    name = "kafka-python"

    def producer(self, bootstrap: str, options: ProducerOptions) -> KafkaPythonProducer:
        return KafkaPythonProducer(bootstrap, options)

    def member(self, bootstrap: str, topic: str, options: GroupOptions) -> KafkaPythonMember:
        return KafkaPythonMember(bootstrap, topic, options)

    def consume(self, bootstrap: str, topic: str, partitions: list[int], isolation: str) -> list[Message]:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, isolation_level=isolation, auto_offset_reset="earliest"
        )
        try:
            assigned = [TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(assigned)
            consumer.seek_to_beginning(*assigned)
            ends = consumer.end_offsets(assigned)
            messages: list[Message] = []
            deadline = time.monotonic() + TIMEOUT_S
            while any(consumer.position(partition) < ends[partition] for partition in assigned):
                assert time.monotonic() < deadline, f"{len(messages)} messages, ends {ends}"
                for records in consumer.poll(timeout_ms=500).values():
                    messages += [as_message(record) for record in records if record.offset < ends[_of(record)]]
            return messages
        finally:
            consumer.close()

    def close(self) -> None:
        """Do nothing: the driver has no processes or threads."""


def _of(record: Any) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


def as_message(record: Any) -> Message:
    return Message(
        record.partition, record.offset, record.timestamp, record.key, record.value, tuple(record.headers or ())
    )
