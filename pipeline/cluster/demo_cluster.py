"""Start, kill, restart and stop the brokers of a demo that was started without `--bootstrap`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from odradek import run_module
from odradek.pipeline.cluster.access import Access
from odradek.pipeline.cluster.owned_process import OwnedProcess

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence
    from pathlib import Path

BROKERS = 3
"""Brokers of a demo: the fewest that keep `min.insync.replicas=2` while one broker is down."""
COMMAND_SECONDS_MAX = 90.0
"""Maximum seconds for one `odradek start` or `odradek status` command."""
ADMIN_PROPERTIES = "client-admin.properties"
"""File with the client properties of the administrator, in the directory of a secured cluster."""
IN_SYNC_SECONDS_MAX = 60.0
"""Maximum seconds until all replicas are in sync after a broker was restarted."""
IN_SYNC_INTERVAL_SECONDS = 0.2
"""Seconds between two checks of the in-sync replicas."""


class DemoCluster:
    """Odradek brokers, started by `odradek up`. They terminate when the calling process terminates.

    Args:
        directory: Data directory of the cluster (`odradek up --dir`).
        console: File to which the standard error of the commands is appended.
        port: First client port; 0 selects free ports.
        brokers: Number of brokers.
        secure: Start the brokers with TLS and passwords (`odradek up --secure`). `access` is that of the administrator.
        options: Further options of `odradek up`.

    Raises:
        RuntimeError: The brokers did not start. The message contains the end of `console`.
    """

    def __init__(
        self,
        directory: Path,
        console: Path,
        port: int = 0,
        brokers: int = BROKERS,
        *,
        secure: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        self._directory = str(directory.resolve())
        self._console = console
        options = [*options, "--secure"] if secure else options
        arguments = ["--brokers", str(brokers), "--dir", self._directory, "--port", str(port), *options]
        command = run_module.command("odradek", "up", *arguments)
        self._process = OwnedProcess(command, console=console)
        line = self._process.output.readline()
        if not line.startswith("ready "):
            self._process.stop()
            log = console.read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"the brokers did not start: {line}{log[-2000:]}")
        properties = directory / ADMIN_PROPERTIES if secure else None
        self.access = Access.of_file(line.split()[1], properties)

    def stop(self) -> None:
        """Stop all brokers, and wait for their end."""
        self._process.stop()

    def kill(self, node_id: int, pids: Mapping[int, int]) -> None:
        """Send SIGKILL to one broker. `pids` is the result of an earlier call of `pids`, which takes too long here."""
        os.kill(pids[node_id], signal.SIGKILL)

    def pids(self) -> dict[int, int]:
        """Return the process ids of the running brokers by node id. Raise RuntimeError if `odradek status` fails."""
        return {row["node_id"]: row["pid"] for row in self._status()["brokers"] if row["running"]}

    def metrics(self) -> list[str]:
        """Return the address of the metrics of each running broker. Raise RuntimeError if `odradek status` fails."""
        return [row["metrics"] for row in self._status()["brokers"] if row["metrics"] is not None]

    def restart(self, node_id: int) -> None:
        """Start a broker that was killed, and return when it is ready. Raise RuntimeError if it does not start."""
        self._run("start", str(node_id))

    def await_in_sync(self, stopped: threading.Event) -> None:
        """Wait until every broker runs and every replica is in sync, or until `stopped` is set.

        Raise TimeoutError after `IN_SYNC_SECONDS_MAX`, and RuntimeError if `odradek status` fails.
        """
        deadline = time.monotonic() + IN_SYNC_SECONDS_MAX
        while not stopped.wait(IN_SYNC_INTERVAL_SECONDS):
            status = self._status()
            not_running = [row["node_id"] for row in status["brokers"] if row["state"] != "running"]
            if not not_running and not status["under_replicated"]:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the cluster is not in sync after {IN_SYNC_SECONDS_MAX:.0f} s: brokers that do not run "
                    f"{not_running}, under-replicated partitions {status['under_replicated']}"
                )

    def _status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self._run("status", "--json"))
        return status

    def _run(self, *arguments: str) -> str:
        """Run one `odradek` command, and return its standard output. Raise RuntimeError if its exit code is not 0."""
        completed = subprocess.run(
            run_module.command("odradek", *arguments, "--dir", self._directory),
            env=run_module.environment(),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        with self._console.open("a", encoding="utf-8") as console:
            console.write(completed.stderr)
        if completed.returncode != 0:
            raise RuntimeError(f"odradek {' '.join(arguments)} failed: {completed.stderr.strip()}")
        return completed.stdout
