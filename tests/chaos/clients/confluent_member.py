"""A member of a group by confluent-kafka, of either protocol: a transformer (KIP-447) or a taker."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.chaos.admin_requests import quiet
from tests.chaos.clients.common import (
    CALL_SECONDS,
    HEARTBEAT_MS,
    HUNG,
    HUNG_SECONDS,
    POLL_INTERVAL_MS,
    SESSION_MS,
    Client,
)
from tests.chaos.clients.confluent_producer import TRIES_MAX, Sender, end_transaction
from tests.chaos.clients.member import ABORTED_SHARE, BATCH_MAX, SLOW_SECONDS, SLOW_SHARE, Notes, Place, key_of
from tests.sim.history import INFO, INIT, OK

POLL_SECONDS = 0.3
PAUSE_SECONDS = 0.2


def places_of(partitions: list[TopicPartition]) -> list[Place]:
    return [(each.topic, each.partition) for each in partitions]


class Member:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.notes = Notes(client)
        self.outputs = [(topic, index) for topic, count in client.order.outputs.items() for index in range(count)]
        self.sender: Sender | None = None
        self.batch: dict[Place, list[int]] = {}
        self.transactions = 0
        self.consumer = self.open()

    def open(self) -> Consumer:
        order = self.client.order
        config: dict[str, Any] = {
            "bootstrap.servers": order.bootstrap,
            "client.id": f"{order.group}/{order.process}",
            "group.id": order.group,
            "group.protocol": order.protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "max.poll.interval.ms": POLL_INTERVAL_MS,
            "fetch.wait.max.ms": 300,
            "socket.timeout.ms": 5_000,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 5_000,
            "log_level": 0,
            "error_cb": quiet,
        }
        if order.protocol == "classic":
            config |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        consumer = Consumer(config)
        calls = {"on_assign": self.assigned, "on_revoke": self.revoked, "on_lost": self.revoked}
        consumer.subscribe(list(order.topics), **calls)
        return consumer

    def assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.notes.assigned(places_of(partitions))

    def revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """What was collected of them is somebody else's now."""
        self.notes.revoked(places_of(partitions))
        for place in places_of(partitions):
            self.batch.pop(place, None)

    def run(self) -> int:
        while not self.client.stopping.is_set():
            if self.notes.transforms and self.sender is None and not self.begin_anew():
                continue
            if not self.collect():
                continue
            if not self.notes.transforms:
                self.take()
            elif not self.transform():
                self.rewind()
            self.client.stopping.wait(self.client.rng.uniform(0, PAUSE_SECONDS))
        self.consumer.close()
        return 0

    def collect(self) -> bool:
        """Poll until nothing more is at hand. Rebalances happen in here, and here only."""
        self.batch = {}
        wait = POLL_SECONDS
        while sum(map(len, self.batch.values())) < BATCH_MAX:
            message: Message | None = self.consumer.poll(wait)
            wait = 0.0
            if message is None:
                break
            if message.error() is None:
                place = (str(message.topic()), int(message.partition() or 0))
                self.batch.setdefault(place, []).append(int(message.offset() or 0))
        return bool(self.batch)

    def ends(self) -> dict[Place, int]:
        return {place: offsets[-1] + 1 for place, offsets in self.batch.items()}

    def positions(self) -> list[TopicPartition]:
        return [TopicPartition(*place, offset) for place, offset in self.ends().items()]

    def take(self) -> None:
        self.notes.took(self.batch)
        try:
            self.consumer.commit(offsets=self.positions(), asynchronous=False)
        except KafkaException:
            return  # it goes on: what it commits next lies behind this
        self.notes.committed(self.ends())

    # -- transactions

    def begin_anew(self) -> bool:
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
            return self.rewind()
        self.client.journal.complete(INIT, number, INFO)
        self.sender = None
        return False

    def transform(self) -> bool:
        """One transaction. True when it is committed for certain."""
        assert self.sender is not None
        member = self.consumer.consumer_group_metadata()  # as of the poll that brought the batch
        self.transactions += 1
        number = self.client.transaction_number(self.transactions)
        self.notes.took(self.batch, number)
        rng = self.client.rng
        try:
            self.sender.producer.begin_transaction()
            for place, offsets in self.batch.items():
                for offset in offsets:
                    self.sender.send(rng.choice(self.outputs), number, key_of(self.client.order.group, place, offset))
            if rng.random() < SLOW_SHARE:
                time.sleep(SLOW_SECONDS)
            watchdog = threading.Timer(HUNG_SECONDS, self.give_up)
            watchdog.start()
            try:
                self.sender.producer.send_offsets_to_transaction(self.positions(), member, CALL_SECONDS)
            finally:
                watchdog.cancel()
        except KafkaException as failed:
            if failed.args[0].fatal() or not self.end(number, commit=False):
                self.sender = None
            return False
        commit = rng.random() > ABORTED_SHARE
        done = self.end(number, commit=commit)
        if not done:
            self.sender = None
        elif commit:
            self.notes.committed(self.ends())
        return done and commit

    def give_up(self) -> None:
        """The process ends; another one comes in its place."""
        self.client.journal.write("hung", INFO)
        os._exit(HUNG)

    def end(self, transaction: int, *, commit: bool) -> bool:
        assert self.sender is not None
        ended = end_transaction(self.client, self.sender.producer, transaction, commit=commit, written=True)
        return ended is commit

    def rewind(self) -> bool:
        """Back to what is committed; as a new member where that cannot be told. Without a producer that is done when there is one again."""
        if self.sender is None:
            return False
        for _ in range(TRIES_MAX):
            try:
                assignment = self.consumer.assignment()
                for each in self.consumer.committed(assignment, CALL_SECONDS) if assignment else ():
                    if each.error is not None:
                        raise KafkaException(each.error)
                    self.consumer.seek(TopicPartition(each.topic, each.partition, max(0, each.offset)))
            except KafkaException:
                if self.client.stopping.wait(PAUSE_SECONDS):
                    break
                continue
            return True
        self.consumer.close()
        self.consumer = self.open()
        return True


def main() -> int:
    return Member(Client()).run()


if __name__ == "__main__":
    sys.exit(main())
