"""Transactional producers that write while brokers restart, and checks of the records that consumers read."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.interop.drivers.confluent import ConfluentDriver

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = "ledger"
PARTITIONS = 3
RECORDS_MAX = 6
LONGEST_WAIT_S = 60.0


@dataclass
class History:
    """Results that one producer received per transaction. `written` maps a transaction number to its values."""

    tag: str
    written: dict[int, list[str]] = field(default_factory=dict)
    committed: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    recovered: list[str] = field(default_factory=list)
    """Errors that the client library did not retry."""

    def unknown(self) -> list[int]:
        ended = {*self.committed, *self.aborted}
        return [number for number in self.written if number not in ended]


class Load:
    """One transactional producer that continues over broker restarts and records its results."""

    def __init__(self, bootstrap: str, tag: str, seed: int) -> None:
        self.history = History(tag)
        self._bootstrap = bootstrap
        self._rng = random.Random(seed)
        self._stop = threading.Event()
        self._ended = threading.Condition()
        # A daemon: after a failed assertion, it does not hold up the end of pytest.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def go_on(self, transactions: int) -> None:
        """Wait until `transactions` more transactions are committed."""
        with self._ended:
            wanted = len(self.history.committed) + transactions
            is_reached = self._ended.wait_for(
                lambda: self.history.errors or len(self.history.committed) >= wanted, LONGEST_WAIT_S
            )
        assert is_reached, f"{self.history.tag} commits no further transactions"
        assert not self.history.errors, f"{self.history.tag} failed: {self.history.errors}"

    def finish(self) -> History:
        self._stop.set()
        self._thread.join(LONGEST_WAIT_S * 2)
        assert not self._thread.is_alive(), f"{self.history.tag} did not stop"
        return self.history

    def _run(self) -> None:
        try:
            producer = self._connect()
            while not self._stop.is_set():
                try:
                    self._transaction(producer)
                except KafkaException as failure:
                    producer = self._recover(producer, failure.args[0])
        except BaseException as failure:
            self.history.errors.append(failure)
            with self._ended:
                self._ended.notify_all()

    def _connect(self) -> Producer:
        config = {"bootstrap.servers": self._bootstrap, "transactional.id": self.history.tag, "log_level": 0}
        producer = Producer({**config, "reconnect.backoff.max.ms": 200, "message.timeout.ms": 20_000})
        producer.init_transactions(LONGEST_WAIT_S)
        return producer

    def _transaction(self, producer: Producer) -> None:
        history, number = self.history, len(self.history.written)
        producer.begin_transaction()
        history.written[number] = []
        for index in range(self._rng.randint(1, RECORDS_MAX)):
            value = f"{history.tag}-{number}-{index}"
            history.written[number].append(value)
            producer.produce(TOPIC, value.encode(), partition=self._rng.randrange(PARTITIONS))
        if self._rng.random() < 0.25:
            producer.abort_transaction(LONGEST_WAIT_S)
            history.aborted.append(number)
        else:
            producer.commit_transaction(LONGEST_WAIT_S)
            history.committed.append(number)
            with self._ended:
                self._ended.notify_all()

    def _recover(self, producer: Producer, error: KafkaError) -> Producer:
        """Recover as the client's documentation requires: abort the transaction, or make a new producer."""
        self.history.recovered.append(str(error))
        if error.txn_requires_abort():
            producer.abort_transaction(LONGEST_WAIT_S)
            self.history.aborted.append(len(self.history.written) - 1)
            return producer
        return self._connect()


def final_read(bootstrap: str, tags: Sequence[str]) -> Counter[str]:
    """Return all committed values. InitProducerId of each transactional id first aborts its open transaction."""
    for tag in tags:
        last = Producer({"bootstrap.servers": bootstrap, "transactional.id": tag, "log_level": 0})
        last.init_transactions(LONGEST_WAIT_S)
    messages = ConfluentDriver().consume(bootstrap, TOPIC, list(range(PARTITIONS)), "read_committed")
    return Counter((message.value or b"").decode() for message in messages)


def check(histories: Sequence[History], records: Counter[str], *, at_least: int) -> None:
    """Check that no acknowledged value is lost or duplicated, and that each transaction is complete or absent."""
    assert [history.errors for history in histories] == [[] for _ in histories]
    assert [value for value, count in records.items() if count > 1] == []
    for history in histories:
        assert len(history.committed) >= at_least
        assert [v for number in history.committed for v in history.written[number] if v not in records] == []
        assert [v for number in history.aborted for v in history.written[number] if v in records] == []
        for number in history.unknown():
            assert len({value in records for value in history.written[number]}) == 1, history.written[number]
