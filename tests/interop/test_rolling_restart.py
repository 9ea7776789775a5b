"""Rolling restart under load: each record is written exactly once, and no client has an error."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers.base import ProducerOptions
from tests.support.command_line import TIMEOUT_S, odradek
from tests.support.local_clusters import detached, status

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.drivers.base import Driver

pytestmark = pytest.mark.interop

CLIENTS = ("confluent-kafka", "aiokafka", "Java 4.4")
PARTITIONS = 3
ROUNDS = 5
"""Rounds of each client before the restart, and again after it."""
TOPIC = "rolled"


class Load:
    """A client that writes continuously: a record, then a record in a transaction, and so on."""

    def __init__(self, driver: Driver, bootstrap: str) -> None:
        self.name = driver.name
        self.acknowledged: list[bytes] = []
        self.failure: BaseException | None = None
        self._driver = driver
        self._bootstrap = bootstrap
        self._rounds = 0
        self._moved = threading.Condition()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=driver.name, daemon=True)
        self._thread.start()

    def await_rounds(self, count: int) -> None:
        """Wait until the client has completed `count` more rounds, or failed."""
        with self._moved:
            target = self._rounds + count
            assert self._moved.wait_for(lambda: self._rounds >= target or self.failure is not None, TIMEOUT_S)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as failure:
            self.failure = failure
        with self._moved:
            self._moved.notify_all()

    def _write(self) -> None:
        plain = self._driver.producer(self._bootstrap, ProducerOptions(idempotent=True))
        transactional = self._driver.producer(self._bootstrap, ProducerOptions(transactional_id=f"{self.name}-id"))
        transactional.init()
        while not self._stopped.is_set():
            values = [f"{self.name} {self._rounds} {kind}".encode() for kind in ("plain", "transactional")]
            partition = self._rounds % PARTITIONS
            plain.send(TOPIC, values[0], partition=partition)
            plain.flush()
            transactional.begin()
            transactional.send(TOPIC, values[1], partition=partition)
            transactional.commit()
            self.acknowledged += values
            with self._moved:
                self._rounds += 1
                self._moved.notify_all()
        plain.close()
        transactional.close()


def test_records_are_written_once_and_no_client_has_an_error(tmp_path: Path, drivers: Callable[[str], Driver]) -> None:
    with detached(tmp_path) as bootstrap:
        clients = odradek("topics", "create", TOPIC, "--partitions", str(PARTITIONS), "--bootstrap", bootstrap)
        assert clients.returncode == 0, clients.stderr
        before = {row["node_id"]: row["pid"] for row in status(tmp_path)["brokers"]}
        loads = [Load(drivers(name), bootstrap) for name in CLIENTS]
        for load in loads:
            load.await_rounds(ROUNDS)
        rolled = odradek("restart", "--rolling", "--dir", str(tmp_path))
        for load in loads:
            load.await_rounds(ROUNDS)
            load.stop()
        assert rolled.returncode == 0, rolled.stderr
        assert {load.name: load.failure for load in loads} == dict.fromkeys(CLIENTS)
        after = {row["node_id"]: row["pid"] for row in status(tmp_path)["brokers"]}
        assert [node_id for node_id in before if before[node_id] == after[node_id]] == []
        assert status(tmp_path)["under_replicated"] == []
        messages = drivers(CLIENTS[0]).consume(bootstrap, TOPIC, list(range(PARTITIONS)), "read_committed")
        assert Counter(message.value for message in messages) == Counter(
            value for load in loads for value in load.acknowledged
        )
