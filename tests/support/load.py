"""A client that writes continuously while a test restarts brokers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.interop.drivers.base import ProducerOptions
from tests.support.command_line import TIMEOUT_S

if TYPE_CHECKING:
    from tests.interop.drivers.base import Driver


class Load:
    """A client that writes continuously: a record, then a record in a transaction, and so on."""

    def __init__(self, driver: Driver, bootstrap: str, topic: str, partitions: int) -> None:
        self.name = driver.name
        self.acknowledged: list[bytes] = []
        self.failure: BaseException | None = None
        self._driver = driver
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
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
            partition = self._rounds % self._partitions
            plain.send(self._topic, values[0], partition=partition)
            plain.flush()
            transactional.begin()
            transactional.send(self._topic, values[1], partition=partition)
            transactional.commit()
            self.acknowledged += values
            with self._moved:
                self._rounds += 1
                self._moved.notify_all()
        plain.close()
        transactional.close()
