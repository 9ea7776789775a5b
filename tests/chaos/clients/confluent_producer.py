"""A producer of confluent-kafka (librdkafka): plain, idempotent, or transactional of the classic generation."""

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
)
from tests.sim.history import END, INFO, INIT, OK

TRIES_MAX = 6
BURST_SECONDS = 0.05
FLUSH_SECONDS = 40.0


def config(client: Client) -> dict[str, Any]:
    order = client.order
    found: dict[str, Any] = {
        "bootstrap.servers": order.bootstrap,
        "client.id": order.transactional_id or order.process,
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
    if order.kind == PLAIN:
        return found | {"enable.idempotence": False, "retries": 0}
    if order.kind == IDEMPOTENT:
        return found | {"enable.idempotence": True}
    assert order.transactional_id
    timeout = {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "message.timeout.ms": TRANSACTION_TIMEOUT_MS}
    return found | timeout | {"transactional.id": order.transactional_id}


def end_transaction(
    client: Client, producer: Producer, transaction: int, *, commit: bool, written: bool
) -> bool | None:
    """How it has ended: True committed, False aborted (also where it could not be committed); None when nobody knows."""
    number = client.end(transaction, commit=commit, written=written)
    for _ in range(TRIES_MAX):
        try:
            if commit:
                producer.commit_transaction(CALL_SECONDS)
            else:
                producer.abort_transaction(CALL_SECONDS)
        except KafkaException as failed:
            error = failed.args[0]
            if error.retriable():
                continue
            client.journal.complete(END, number, INFO, error=error.code(), why=error.str())
            if error.txn_requires_abort() and commit:
                return end_transaction(client, producer, transaction, commit=False, written=written)
            return None
        client.journal.complete(END, number, OK)
        return commit
    client.journal.complete(END, number, INFO)
    return None


class Sender:
    """Sends to a partition and notes what comes of it. `fatal` is set when only a new producer can go on."""

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
        except KafkaException as failed:
            settle.refused()  # type: ignore[attr-defined]
            self.fatal = self.fatal or failed.args[0].fatal()

    def poll(self, seconds: float) -> None:
        """Let callbacks come. A fatal error comes here, too."""
        try:
            self.producer.poll(seconds)
        except KafkaException:
            self.fatal = True


def run_stream(client: Client) -> int:
    """Plain and idempotent: small bursts at the ordered rate."""
    sender = Sender(client)
    client.be_born()
    rate = client.order.records_per_second
    while not client.stopping.is_set():
        for _ in range(max(1, round(client.rng.expovariate(1 / (rate * BURST_SECONDS))))):
            sender.send(client.rng.choice(client.partitions))
        until = time.monotonic() + BURST_SECONDS
        while (left := until - time.monotonic()) > 0:
            sender.poll(left)
        if sender.fatal:
            sender = Sender(client)
            client.be_born()
    return STUCK if sender.producer.flush(FLUSH_SECONDS) else 0


class Transactions:
    """Transactions one after the other, by the client's own rules: retry, abort, or begin again with a new producer."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.sender: Sender | None = None
        self.count = 0

    def run(self) -> int:
        while not self.client.stopping.is_set():
            if self.sender is None and not self._begin_anew():
                continue
            if not self._one():
                self.sender = None
        return 0

    def _begin_anew(self) -> bool:
        number = self.client.be_born()
        self.sender = Sender(self.client)
        for _ in range(TRIES_MAX):
            try:
                self.sender.producer.init_transactions(CALL_SECONDS)
            except KafkaException as failed:
                if failed.args[0].retriable() and not self.client.stopping.is_set():
                    continue
                break
            self.client.journal.complete(INIT, number, OK)
            return True
        self.client.journal.complete(INIT, number, INFO)
        self.sender = None
        return False

    def _one(self) -> bool:
        """One transaction. False when the producer is of no more use."""
        assert self.sender is not None
        self.count += 1
        number = self.client.transaction_number(self.count)
        places = self.client.choose()
        try:
            self.sender.producer.begin_transaction()
        except KafkaException:
            return False
        for place in places:
            self.sender.send(place, number)
            if self.client.rng.random() < 0.1:
                self.sender.poll(0.005)
        time.sleep(self.client.overtime_seconds())
        commit = self.client.rng.random() > 1 / 3
        good = (
            end_transaction(self.client, self.sender.producer, number, commit=commit, written=bool(places)) is not None
        )
        time.sleep(self.client.think_seconds())
        return good


def main() -> int:
    client = Client()
    if client.order.kind != TRANSACTIONAL:
        # Plain, it takes NOT_LEADER_OR_FOLLOWER for a proof that nothing was written, and sends again in spite of retries=0.
        # Idempotent, it bumps its epoch after a time-out and sends what was on its way again under the new one (as seen
        # against Apache Kafka).
        client.journal.write("repeater", INFO)
    return Transactions(client).run() if client.order.kind == TRANSACTIONAL else run_stream(client)


if __name__ == "__main__":
    sys.exit(main())
