"""Clusters that run detached, by the command line; and one transaction, one read."""

from __future__ import annotations

import json
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.local.directory import ClusterDirectory
from odradek.local.processes import ProcessId
from tests.support.command_line import TIMEOUT_S, odradek

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONNECTION_TIMEOUT_MS = 2_000
"""Maximum milliseconds until a new connection has its first response. A paused broker accepts connections."""


def status(directory: Path) -> Any:
    """Return the status of a cluster. An unhealthy cluster has a status, too: only the exit code is 1."""
    return json.loads(odradek("status", "--dir", str(directory), "--json").stdout)


def pid(directory: Path, node_id: int) -> int:
    state = ClusterDirectory(directory).read_state()
    assert state is not None
    return state.running[node_id].pid


def kill(directory: Path, node_id: int) -> None:
    process = ProcessId.of(pid(directory, node_id))
    assert process is not None
    process.signal(signal.SIGKILL)
    assert process.wait_ended(TIMEOUT_S)


def commit(bootstrap: str, topic: str, value: bytes) -> None:
    """Commit one record in a transaction of a new producer."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"{topic}-id",
            "api.version.request.timeout.ms": CONNECTION_TIMEOUT_MS,
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    producer.commit_transaction(TIMEOUT_S)


def await_ended(directory: Path) -> None:
    """Wait until no transaction is open: its markers follow the response to EndTxn."""
    deadline = time.monotonic() + TIMEOUT_S
    while transactions := status(directory)["transactions"]:
        assert time.monotonic() < deadline, f"open: {transactions}"


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Return the first `count` committed records of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, TIMEOUT_S)
        return [message.value() or b"" for message in messages]
    finally:
        consumer.close()


@contextmanager
def detached(directory: Path, *options: str) -> Iterator[str]:
    """Run a detached cluster and yield its bootstrap addresses."""
    started = odradek("up", "--dir", str(directory), "--port", "0", "--detach", *options)
    assert started.returncode == 0, started.stderr
    try:
        yield started.stdout.split()[1]
    finally:
        odradek("down", "--dir", str(directory))
