"""The broker of a demo that was given none, and the topics of any demo."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pipeline.leash import Leashed

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWER_SECONDS_MAX = 30.0
BROKER_DEFAULT = -1
"""Replication factor: what the cluster thinks right, be it one broker or many."""


class OwnBroker:
    """One Odradek broker, started by its command line; it ends when this process does.

    Raises RuntimeError, with what the broker said, when it does not come up.
    """

    def __init__(self, directory: Path, console: Path, port: int = 0) -> None:
        odradek = Path(sys.executable).with_name("odradek")
        command = [str(odradek), "up", "--brokers", "1", "--dir", str(directory.resolve()), "--port", str(port)]
        self._process = Leashed(command, console=console)
        line = self._process.output.readline()
        if not line.startswith("ready "):
            self._process.stop()
            said = console.read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"the broker did not start: {line}{said[-2000:]}")
        self.bootstrap = line.split()[1]

    def stop(self) -> None:
        self._process.stop()


def create_topics(bootstrap: str, partitions: Mapping[str, int]) -> None:
    """Create the topics (name -> partitions). Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, count, BROKER_DEFAULT) for name, count in partitions.items()]
    for done in admin.create_topics(topics, operation_timeout=ANSWER_SECONDS_MAX).values():
        done.result(ANSWER_SECONDS_MAX)


def delete_topics(bootstrap: str, names: list[str]) -> None:
    """Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_topics(names, operation_timeout=ANSWER_SECONDS_MAX).values():
        done.result(ANSWER_SECONDS_MAX)
