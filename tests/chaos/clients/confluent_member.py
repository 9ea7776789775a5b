"""A group member with confluent-kafka, of either group protocol: a transformer (KIP-447) or a committer."""

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
from tests.chaos.clients.member import (
    ABORTED_SHARE,
    BATCH_MAX,
    SLOW_SECONDS,
    SLOW_SHARE,
    MemberJournal,
    Partition,
    key_of,
)
from tests.sim.history import INFO, INIT, OK

POLL_SECONDS = 0.3
PAUSE_SECONDS = 0.2


def partitions_of(partitions: list[TopicPartition]) -> list[Partition]:
    return [(partition.topic, partition.partition) for partition in partitions]


class Member:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.notes = MemberJournal(client)
        self.outputs = [(topic, index) for topic, count in client.spec.outputs.items() for index in range(count)]
        self.sender: Sender | None = None
        self.batch: dict[Partition, list[int]] = {}
        self.transactions = 0
        self.consumer = self.open()

    def open(self) -> Consumer:
        spec = self.client.spec
        config: dict[str, Any] = {
            **spec.access.confluent(),
            "client.id": f"{spec.group}/{spec.process}",
            "group.id": spec.group,
            "group.protocol": spec.protocol,
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
        if spec.protocol == "classic":
            config |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        consumer = Consumer(config)
        calls = {"on_assign": self.assigned, "on_revoke": self.revoked, "on_lost": self.revoked}
        consumer.subscribe(list(spec.topics), **calls)
        return consumer

    def assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.notes.assigned(partitions_of(partitions))

    def revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Discard the records of revoked partitions from the batch. Another member consumes them."""
        self.notes.revoked(partitions_of(partitions))
        for partition in partitions_of(partitions):
            self.batch.pop(partition, None)

    def run(self) -> int:
        while not self.client.stopping.is_set():
            if self.notes.transforms and self.sender is None and not self.new_producer():
                continue
            if not self.collect():
                continue
            if not self.notes.transforms:
                self.commit_batch()
            elif not self.transform():
                self.rewind()
            self.client.stopping.wait(self.client.rng.uniform(0, PAUSE_SECONDS))
        self.consumer.close()
        return 0

    def collect(self) -> bool:
        """Poll until no more record is available or the batch is full. The rebalance callbacks run only in here."""
        self.batch = {}
        wait = POLL_SECONDS
        while sum(map(len, self.batch.values())) < BATCH_MAX:
            message: Message | None = self.consumer.poll(wait)
            wait = 0.0
            if message is None:
                break
            if message.error() is None:
                partition = (str(message.topic()), int(message.partition() or 0))
                self.batch.setdefault(partition, []).append(int(message.offset() or 0))
        return bool(self.batch)

    def ends(self) -> dict[Partition, int]:
        return {partition: offsets[-1] + 1 for partition, offsets in self.batch.items()}

    def positions(self) -> list[TopicPartition]:
        return [TopicPartition(*partition, offset) for partition, offset in self.ends().items()]

    def commit_batch(self) -> None:
        self.notes.consumed(self.batch)
        try:
            self.consumer.commit(offsets=self.positions(), asynchronous=False)
        except KafkaException:
            return  # the next commit includes these offsets
        self.notes.committed(self.ends())

    # ---- transactions -----------------------------------------------------------------------------------------------

    def new_producer(self) -> bool:
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
            return self.rewind()
        self.client.journal.complete(INIT, number, INFO)
        self.sender = None
        return False

    def transform(self) -> bool:
        """Run one transaction for the batch. Return True if it is committed, False if it is aborted or unknown."""
        assert self.sender is not None
        member = self.consumer.consumer_group_metadata()  # before the next poll: the generation of the batch
        self.transactions += 1
        number = self.client.transaction_number(self.transactions)
        self.notes.consumed(self.batch, number)
        rng = self.client.rng
        try:
            self.sender.producer.begin_transaction()
            for partition, offsets in self.batch.items():
                for offset in offsets:
                    self.sender.send(
                        rng.choice(self.outputs), number, key_of(self.client.spec.group, partition, offset)
                    )
            if rng.random() < SLOW_SHARE:
                time.sleep(SLOW_SECONDS)
            watchdog = threading.Timer(HUNG_SECONDS, self.give_up)
            watchdog.start()
            try:
                self.sender.producer.send_offsets_to_transaction(self.positions(), member, CALL_SECONDS)
            finally:
                watchdog.cancel()
        except KafkaException as failure:
            if failure.args[0].fatal() or not self.end(number, commit=False):
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
        """Exit the process. The supervisor replaces it."""
        self.client.journal.write("hung", INFO)
        os._exit(HUNG)

    def end(self, transaction: int, *, commit: bool) -> bool:
        assert self.sender is not None
        ended = end_transaction(self.client, self.sender.producer, transaction, commit=commit, written=True)
        return ended is commit

    def rewind(self) -> bool:
        """Seek to the committed offsets. If they cannot be fetched, rejoin the group as a new member.

        Return False without a producer; the next producer rewinds.
        """
        if self.sender is None:
            return False
        for _ in range(TRIES_MAX):
            try:
                assignment = self.consumer.assignment()
                for committed in self.consumer.committed(assignment, CALL_SECONDS) if assignment else ():
                    if committed.error is not None:
                        raise KafkaException(committed.error)
                    position = TopicPartition(committed.topic, committed.partition, max(0, committed.offset))
                    self.consumer.seek(position)
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
