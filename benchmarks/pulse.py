"""Pulse: one producer that sends a record, waits for its acknowledgment, pauses, and sends the next one.

The latencies show how much other work in the cluster delays a client.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import Message, Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

PAUSE_S = 0.005
"""Seconds between an acknowledgment and the next record."""
RECORD = b"x" * 100
ACKNOWLEDGED_S_MAX = 600.0
"""Maximum seconds until a record is acknowledged. They include the start of a cluster with 10,000 partitions."""
BUSY = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""
"""Program that works until its parent process, whose id is its argument, ends."""


@dataclass
class Pulses:
    """Latencies of acknowledged records in milliseconds."""

    took_ms: list[float] = field(default_factory=list)

    @property
    def worst_ms(self) -> float:
        return max(self.took_ms)

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.took_ms)


class PulseProducer:
    """Producer of single records to partition 0 of `topic`. It connects again quickly after a start of the brokers."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        retry = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 20}
        fresh = {"topic.metadata.refresh.fast.interval.ms": 50, "message.timeout.ms": int(ACKNOWLEDGED_S_MAX * 1_000)}
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0, **retry, **fresh}
        )

    def send_one(self) -> float:
        """Send a record and wait. Return its latency in milliseconds. Raise RuntimeError if it is not acknowledged."""
        errors: list[object] = []

        def delivered(error: object, _message: Message) -> None:
            errors.append(error)

        began = time.perf_counter()
        self._producer.produce(self._topic, RECORD, partition=0, on_delivery=delivered)
        while not errors:
            self._producer.poll(1.0)
        if errors[0] is not None:
            raise RuntimeError(f"a record was not acknowledged: {errors[0]}")
        return (time.perf_counter() - began) * 1_000


@contextmanager
def pulsing(producer: PulseProducer) -> Iterator[Pulses]:
    """Send pulses beside the block. The result is complete at the end of the block."""
    pulses, end = Pulses(), threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not end.is_set():
                pulses.took_ms.append(producer.send_one())
                end.wait(PAUSE_S)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield pulses
    finally:
        end.set()
        thread.join()
    if failures:
        raise RuntimeError("the pulse failed") from failures[0]


@contextmanager
def foreign_load(processes: int) -> Iterator[None]:
    """Run processes beside the block that use as much CPU time as they get."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()
