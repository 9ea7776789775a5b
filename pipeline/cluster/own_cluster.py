"""The cluster of a demo that was given none, and the topics of any demo."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek import run_module
from odradek.pipeline.cluster.leash import Leashed

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from pathlib import Path

ANSWER_SECONDS_MAX = 30.0
BROKERS = 3
BROKER_DEFAULT = -1
"""Replication factor: what the cluster thinks right, be it one broker or many."""
COMMAND_SECONDS_MAX = 90.0
WHOLE_SECONDS_MAX = 60.0
WHOLE_INTERVAL_SECONDS = 0.2


class OwnCluster:
    """Odradek brokers, started by the command line; they end when this process does.

    Raises RuntimeError, with what was said, when they do not come up.
    """

    def __init__(self, directory: Path, console: Path, port: int = 0, brokers: int = BROKERS) -> None:
        self._directory = str(directory.resolve())
        self._console = console
        options = ["--brokers", str(brokers), "--dir", self._directory, "--port", str(port)]
        command = run_module.command("odradek", "up", *options)
        self._process = Leashed(command, console=console)
        line = self._process.output.readline()
        if not line.startswith("ready "):
            self._process.stop()
            said = console.read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"the brokers did not start: {line}{said[-2000:]}")
        self.bootstrap = line.split()[1]

    def stop(self) -> None:
        self._process.stop()

    def kill(self, node_id: int, pids: Mapping[int, int]) -> None:
        """SIGKILL one broker. ``pids``: of `pids`, asked beforehand, since that takes longer than a moment."""
        os.kill(pids[node_id], signal.SIGKILL)

    def pids(self) -> dict[int, int]:
        """Process ids of the brokers that run, by node id. Raises RuntimeError."""
        return {row["node_id"]: row["pid"] for row in self._status()["brokers"] if row["running"]}

    def restart(self, node_id: int) -> None:
        """Start a broker that was killed; returns when it is ready. Raises RuntimeError."""
        self._run("start", str(node_id))

    def await_whole(self, stopped: threading.Event) -> None:
        """Wait until every broker runs and every replica is in sync, or until ``stopped``. Raises TimeoutError."""
        deadline = time.monotonic() + WHOLE_SECONDS_MAX
        while not stopped.wait(WHOLE_INTERVAL_SECONDS):
            status = self._status()
            lacking = [row["node_id"] for row in status["brokers"] if row["state"] != "running"]
            if not lacking and not status["under_replicated"]:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"not in sync: brokers {lacking}, partitions {status['under_replicated']}")

    def _status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._run("status", "--json"))
        return found

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            run_module.command("odradek", *arguments, "--dir", self._directory),
            env=run_module.environment(),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        with self._console.open("a", encoding="utf-8") as console:
            console.write(done.stderr)
        if done.returncode != 0:
            raise RuntimeError(f"odradek {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout


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
