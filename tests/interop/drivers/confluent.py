"""Driver of confluent-kafka (librdkafka), with transactions of the classic protocol TV1."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.interop.drivers.base import TIMEOUT_S, Fenced, GroupOptions, Message, ProducerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})


class ConfluentProducer:
    def __init__(self, bootstrap: str, options: ProducerOptions, settings: Mapping[str, Any]) -> None:
        config: dict[str, Any] = {
            **settings,
            "bootstrap.servers": bootstrap,
            "compression.type": options.codec,
            "enable.idempotence": options.idempotent or options.transactional_id is not None,
            "linger.ms": 5,
            "log_level": 0,
        }
        if options.transactional_id is not None:
            config["transactional.id"] = options.transactional_id
            config["transaction.timeout.ms"] = options.transaction_timeout_ms
        self._producer = Producer(config)
        self._errors: list[KafkaError] = []

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
        extra: dict[str, Any] = {} if timestamp is None else {"timestamp": timestamp}
        self._call(
            lambda: self._producer.produce(
                topic, value, key=key, partition=partition, headers=list(headers), on_delivery=self._delivered, **extra
            )
        )

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._errors.append(error)

    def flush(self) -> None:
        # If the producer is fenced meanwhile, this call fails without an error code. The delivery reports have it.
        try:
            remaining = self._producer.flush(TIMEOUT_S)
        except (SystemError, KafkaException):
            remaining = 0
            assert self._errors, "flush failed without a delivery error"
        errors, self._errors = self._errors, []
        if errors:
            raise translate(errors[0])
        assert remaining == 0, f"{remaining} records were not acknowledged within {TIMEOUT_S} s"

    def init(self) -> None:
        self._call(lambda: self._producer.init_transactions(TIMEOUT_S))

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def commit(self) -> None:
        self._call(lambda: self._producer.commit_transaction(TIMEOUT_S))

    def abort(self) -> None:
        self._call(lambda: self._producer.abort_transaction(TIMEOUT_S))
        self._errors.clear()

    def send_offsets(self, consumer: Any) -> None:
        member: Consumer = consumer.consumer
        positions = [position for position in member.position(member.assignment()) if position.offset >= 0]
        self._call(
            lambda: self._producer.send_offsets_to_transaction(positions, member.consumer_group_metadata(), TIMEOUT_S)
        )

    def close(self) -> None:
        self._producer.purge()
        with contextlib.suppress(KafkaException, SystemError):  # a fenced producer cannot abort; the test expects it
            self._producer.flush(TIMEOUT_S)

    def _call(self, work: Callable[[], object]) -> None:
        try:
            work()
        except KafkaException as failed:
            raise translate(failed.args[0]) from failed


def translate(error: KafkaError) -> Exception:
    return Fenced(str(error)) if error.code() in FENCED else KafkaException(error)


class ConfluentMember:
    def __init__(self, bootstrap: str, topic: str, options: GroupOptions, settings: Mapping[str, Any]) -> None:
        config: dict[str, Any] = {
            **settings,
            "bootstrap.servers": bootstrap,
            "group.id": options.group,
            "group.protocol": options.protocol,
            "enable.auto.commit": False,
            "isolation.level": options.isolation,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        if options.protocol == "classic":
            config |= {"session.timeout.ms": options.session_ms, "heartbeat.interval.ms": 500}
        if options.instance is not None:
            config["group.instance.id"] = options.instance
        self._topic = topic
        self._polled: list[Any] = []
        self.consumer = Consumer(config)
        self.consumer.subscribe([f"^{topic}" if options.pattern else topic], on_revoke=self._revoked)

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Drop polled records of revoked partitions: another member processes them. It is called within a poll."""
        gone = [(partition.topic, partition.partition) for partition in partitions]
        self._polled = [message for message in self._polled if (message.topic(), message.partition()) not in gone]

    def poll(self, seconds: float) -> list[Message]:
        self._polled = []
        deadline = time.monotonic() + seconds
        while (message := self.consumer.poll(max(0.0, deadline - time.monotonic()))) is not None:
            error = message.error()
            if error is None:
                self._polled.append(message)
            elif not error.retriable() and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(error)
        return [as_message(message) for message in self._polled]

    def assigned(self) -> list[int]:
        return sorted(partition.partition for partition in self.consumer.assignment())

    def commit(self) -> None:
        with contextlib.suppress(NothingToCommit):
            self._commit()

    def _commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as failed:
            if failed.args[0].code() == KafkaError._NO_OFFSET:
                raise NothingToCommit from failed
            raise

    def committed(self, partitions: list[int]) -> list[int | None]:
        request = [TopicPartition(self._topic, partition) for partition in partitions]
        offsets = {entry.partition: entry.offset for entry in self.consumer.committed(request, timeout=TIMEOUT_S)}
        return [offsets[partition] if offsets[partition] >= 0 else None for partition in partitions]

    def close(self) -> None:
        self.consumer.close()


class NothingToCommit(Exception):
    """No message was polled since the last commit."""


class ConfluentDriver:
    name = "confluent-kafka"

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        """`settings` are further settings of all clients, for example of TLS."""
        self._settings = settings or {}

    def producer(self, bootstrap: str, options: ProducerOptions) -> ConfluentProducer:
        return ConfluentProducer(bootstrap, options, self._settings)

    def member(self, bootstrap: str, topic: str, options: GroupOptions) -> ConfluentMember:
        return ConfluentMember(bootstrap, topic, options, self._settings)

    def consume(self, bootstrap: str, topic: str, partitions: list[int], isolation: str) -> list[Message]:
        consumer = Consumer(
            {
                **self._settings,
                "bootstrap.servers": bootstrap,
                "group.id": "assigned",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            return self._read(consumer, len(partitions))
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, partitions: int) -> list[Message]:
        messages: list[Message] = []
        ended: dict[int, bool] = {}
        deadline = time.monotonic() + TIMEOUT_S
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"ends of {ended} only, {len(messages)} messages"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                ended[message.partition() or 0] = True
            elif error is not None:
                raise KafkaException(error)
            else:
                messages.append(as_message(message))
        return messages

    def close(self) -> None:
        """Do nothing: the driver has no processes or threads."""


def as_message(message: Any) -> Message:
    return Message(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
