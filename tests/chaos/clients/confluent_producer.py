"""A producer with confluent-kafka (librdkafka): plain, idempotent, or transactional with the classic protocol (TV1)."""

from __future__ import annotations

import sys
import time
from typing import Any

from confluent_kafka import KafkaException, Message, Producer

from tests.chaos.admin_requests import quiet
from tests.chaos.clients.common import (
    CALL_SECONDS,
    DELIVERY_TIMEOUT_MS,
    IDEMPOTENT,
    PLAIN,
    REQUEST_TIMEOUT_MS,
    STUCK,
    TRANSACTION_TIMEOUT_MS,
    TRANSACTIONAL,
    Client,
    confluent_settings,
)
from tests.sim.history import END, INFO, INIT, OK

TRIES_MAX = 6
BURST_SECONDS = 0.05
FLUSH_SECONDS = 40.0


def config(client: Client) -> dict[str, Any]:
    spec = client.spec
    settings: dict[str, Any] = {
        **confluent_settings(spec.access),
        "client.id": spec.transactional_id or spec.process,
        "log_level": 0,
        "linger.ms": 2,
        "acks": "all",
        "socket.timeout.ms": REQUEST_TIMEOUT_MS,
        "request.timeout.ms": REQUEST_TIMEOUT_MS,
        "message.timeout.ms": DELIVERY_TIMEOUT_MS,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "retry.backoff.ms": 50,
        "topic.metadata.refresh.interval.ms": 5_000,
        "error_cb": quiet,
    }
    if spec.kind == PLAIN:
        return settings | {"enable.idempotence": False, "retries": 0}
    if spec.kind == IDEMPOTENT:
        return settings | {"enable.idempotence": True}
    assert spec.transactional_id
    timeout = {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "message.timeout.ms": TRANSACTION_TIMEOUT_MS}
    return settings | timeout | {"transactional.id": spec.transactional_id}


def end_transaction(
    client: Client, producer: Producer, transaction: int, *, commit: bool, written: bool
) -> bool | None:
    """End a transaction. Return True if it is committed, False if it is aborted, None if the result is unknown.

    If the commit fails with an abortable error, the transaction is aborted.
    """
    number = client.end(transaction, commit=commit, written=written)
    for _ in range(TRIES_MAX):
        try:
            if commit:
                producer.commit_transaction(CALL_SECONDS)
            else:
                producer.abort_transaction(CALL_SECONDS)
        except KafkaException as failure:
            error = failure.args[0]
            if error.retriable():
                continue
            client.journal.complete(END, number, INFO, error=error.code(), reason=error.str())
            if error.txn_requires_abort() and commit:
                return end_transaction(client, producer, transaction, commit=False, written=written)
            return None
        client.journal.complete(END, number, OK)
        return commit
    client.journal.complete(END, number, INFO)
    return None


class Sender:
    """Sends records, and writes the results to the journal. If `fatal` is set, a new producer is needed."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.producer = Producer(config(client))
        self.fatal = False

    def send(self, partition: tuple[str, int], transaction: int = -1, key: bytes | None = None) -> None:
        value, settle = self.client.send(partition, transaction)

        def delivered(error: Any, message: Message) -> None:
            if error is not None and error.fatal():
                self.fatal = True
            settle(message.offset() if error is None else None)

        try:
            self.producer.produce(partition[0], value, key, partition=partition[1], on_delivery=delivered)
        except BufferError:
            settle.refused()  # type: ignore[attr-defined]
            self.poll(0.1)
        except KafkaException as failure:
            settle.refused()  # type: ignore[attr-defined]
            self.fatal = self.fatal or failure.args[0].fatal()

    def poll(self, seconds: float) -> None:
        """Run the delivery callbacks. librdkafka also raises fatal errors here."""
        try:
            self.producer.poll(seconds)
        except KafkaException:
            self.fatal = True


def run_stream(client: Client) -> int:
    """Send small bursts of records with a plain or idempotent producer, at the specified rate."""
    sender = Sender(client)
    client.new_incarnation()
    rate = client.spec.records_per_second
    while not client.stopping.is_set():
        for _ in range(max(1, round(client.rng.expovariate(1 / (rate * BURST_SECONDS))))):
            sender.send(client.rng.choice(client.partitions))
        until = time.monotonic() + BURST_SECONDS
        while (left := until - time.monotonic()) > 0:
            sender.poll(left)
        if sender.fatal:
            sender = Sender(client)
            client.new_incarnation()
    return STUCK if sender.producer.flush(FLUSH_SECONDS) else 0


class Transactions:
    """Runs transactions. The flags of librdkafka's error decide on a retry, an abort or a new producer."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.sender: Sender | None = None
        self.count = 0

    def run(self) -> int:
        while not self.client.stopping.is_set():
            if self.sender is None and not self._new_producer():
                continue
            if not self._run_transaction():
                self.sender = None
        return 0

    def _new_producer(self) -> bool:
        number = self.client.new_incarnation()
        self.sender = Sender(self.client)
        for _ in range(TRIES_MAX):
            try:
                self.sender.producer.init_transactions(CALL_SECONDS)
            except KafkaException as failure:
                if failure.args[0].retriable() and not self.client.stopping.is_set():
                    continue
                break
            self.client.journal.complete(INIT, number, OK)
            return True
        self.client.journal.complete(INIT, number, INFO)
        self.sender = None
        return False

    def _run_transaction(self) -> bool:
        """Run one transaction. Return False if a new producer is needed."""
        assert self.sender is not None
        self.count += 1
        number = self.client.transaction_number(self.count)
        partitions = self.client.choose()
        try:
            self.sender.producer.begin_transaction()
        except KafkaException:
            return False
        for partition in partitions:
            self.sender.send(partition, number)
            if self.client.rng.random() < 0.1:
                self.sender.poll(0.005)
        time.sleep(self.client.timeout_pause_seconds())
        commit = self.client.rng.random() > 1 / 3
        ended = end_transaction(self.client, self.sender.producer, number, commit=commit, written=bool(partitions))
        time.sleep(self.client.pause_seconds())
        return ended is not None


def main() -> int:
    client = Client()
    if client.spec.kind != TRANSACTIONAL:
        # librdkafka without idempotence treats NOT_LEADER_OR_FOLLOWER as a proof that nothing was written, and retries
        # despite retries=0. With idempotence, it bumps its epoch after a time-out, and sends the batches in flight
        # again with the new epoch. Both were also observed with Apache Kafka.
        client.journal.write("repeater", INFO)
    return Transactions(client).run() if client.spec.kind == TRANSACTIONAL else run_stream(client)


if __name__ == "__main__":
    sys.exit(main())
