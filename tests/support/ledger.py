"""Transactional producers that write a ledger while brokers come and go, and what must stand in it afterwards."""

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
    """What one producer was told about each of its transactions: transaction number -> values."""

    tag: str
    written: dict[int, list[str]] = field(default_factory=dict)
    committed: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    recovered: list[str] = field(default_factory=list)
    """Errors that the client did not get over by itself."""

    def unknown(self) -> list[int]:
        told = {*self.committed, *self.aborted}
        return [number for number in self.written if number not in told]


class Load:
    """One transactional producer that goes on over restarts, and notes what it was told."""

    def __init__(self, bootstrap: str, tag: str, seed: int) -> None:
        self.history = History(tag)
        self._bootstrap = bootstrap
        self._rng = random.Random(seed)
        self._stop = threading.Event()
        self._ended = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def go_on(self, transactions: int) -> None:
        """Wait until so many more have been committed."""
        with self._ended:
            wanted = len(self.history.committed) + transactions
            enough = self._ended.wait_for(
                lambda: self.history.errors or len(self.history.committed) >= wanted, LONGEST_WAIT_S
            )
        assert enough, f"{self.history.tag} does not go on"
        assert not self.history.errors, f"{self.history.tag} has ended: {self.history.errors}"

    def finish(self) -> History:
        self._stop.set()
        self._thread.join(LONGEST_WAIT_S * 2)
        assert not self._thread.is_alive(), f"{self.history.tag} is stuck"
        return self.history

    def _run(self) -> None:
        try:
            producer = self._connect()
            while not self._stop.is_set():
                try:
                    self._transaction(producer)
                except KafkaException as failed:
                    producer = self._recover(producer, failed.args[0])
        except BaseException as failed:
            self.history.errors.append(failed)
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
        """What the client's documentation asks for: abort and go on, or begin again with a new producer."""
        self.history.recovered.append(str(error))
        if error.txn_requires_abort():
            producer.abort_transaction(LONGEST_WAIT_S)
            self.history.aborted.append(len(self.history.written) - 1)
            return producer
        return self._connect()


def final_read(bootstrap: str, tags: Sequence[str]) -> Counter[str]:
    """Everything that committed readers see once no transaction is open: new init of each id ends what was left."""
    for tag in tags:
        last = Producer({"bootstrap.servers": bootstrap, "transactional.id": tag, "log_level": 0})
        last.init_transactions(LONGEST_WAIT_S)
    messages = ConfluentDriver().consume(bootstrap, TOPIC, list(range(PARTITIONS)), "read_committed")
    return Counter((message.value or b"").decode() for message in messages)


def check(histories: Sequence[History], found: Counter[str], *, at_least: int) -> None:
    """Nothing acknowledged is lost, nothing comes twice, every transaction is whole or not there at all."""
    assert [history.errors for history in histories] == [[] for _ in histories]
    assert [value for value, count in found.items() if count > 1] == []
    for history in histories:
        assert len(history.committed) >= at_least
        assert [v for number in history.committed for v in history.written[number] if v not in found] == []
        assert [v for number in history.aborted for v in history.written[number] if v in found] == []
        for number in history.unknown():
            assert len({value in found for value in history.written[number]}) == 1, history.written[number]
