"""One real Apache Kafka broker (KRaft, combined roles) from the jars of one version.

It is the reference: tests that apply to each broker run against it, too, and benchmarks compare with it. As a command
it serves until Ctrl-C: ``python -m tests.support.kafka_broker --port 19092``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from odradek.pipeline.cluster.owned_process import OwnedProcess
from tests.support.jars import REFERENCE
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

CLUSTER_ID = "b2RyYWRlay1yZWZlcmVlMA"
HEAP = "-Xmx1G"
START_SECONDS_MAX = 60.0
PROBE_INTERVAL_SECONDS = 0.02
# ApiVersions v0, correlation id 1, client id "probe": the first request that each Kafka broker serves.
PROBE = struct.pack(">ihhih5s", 15, 18, 0, 1, 5, b"probe")


@dataclass(frozen=True, slots=True)
class Usage:
    """Resident bytes and CPU seconds since the start of the broker process."""

    rss_bytes: int
    cpu_seconds: float


def process_usage(pid: int) -> Usage:
    """Read memory and CPU time of a process from /proc. Raise FileNotFoundError or ProcessLookupError at its end."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    resident_pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    ticks = int(stat[11]) + int(stat[12])
    return Usage(resident_pages * os.sysconf("SC_PAGE_SIZE"), ticks / os.sysconf("SC_CLK_TCK"))


def is_ready(port: int, *, timeout_seconds: float = 5.0) -> bool:
    """Return True if the broker responds to ApiVersions. A connection alone shows only that the port is bound."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds) as connection:
            connection.sendall(PROBE)
            return len(connection.recv(8)) > 0
    except OSError:
        return False


class KafkaBroker:
    """Context manager around one broker process; may be killed and started again on the same data.

    Args:
        directory: Folder of config, data and console output; None: a temporary directory.
        port: Client port. None: a free one.
        overrides: Broker properties in Kafka's names, over those set here.
        heap: The JVM's heap option.
        jars: Folder with the jars of a Kafka version.
        start_seconds_max: Maximum seconds of a start.
        listeners: Security protocol of each further listener by its name. `ports` has their ports.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        port: int | None = None,
        overrides: Mapping[str, str] | None = None,
        heap: str = HEAP,
        jars: Path = REFERENCE,
        start_seconds_max: float = START_SECONDS_MAX,
        listeners: Mapping[str, str] | None = None,
    ) -> None:
        self._owns_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="kafka-referee-"))
        self.port = port or free_port()
        self._controller_port = free_port()
        self._protocols = dict(listeners or {})
        self.ports = {name: free_port() for name in self._protocols}
        self._overrides = dict(overrides or {})
        self._heap = heap
        self._jars = jars
        self._start_seconds_max = start_seconds_max
        self._process: OwnedProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def controller_bootstrap(self) -> str:
        """Address of the listener for controllers."""
        return f"127.0.0.1:{self._controller_port}"

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    @property
    def console(self) -> Path:
        return self.directory / "console.log"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def usage(self) -> Usage:
        return process_usage(self.pid)

    def format(self) -> None:
        """Prepare config and data directory (Kafka's `storage format`); call once, before the first `start`."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{name}={value}" for name, value in self._properties().items()]
        (self.directory / "server.properties").write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = self._java("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config")
        done = subprocess.run(
            [*command, str(self.directory / "server.properties")], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"storage format failed: {done.stdout}{done.stderr}")

    def start(self) -> None:
        """Start the process and wait until it is ready. Raise RuntimeError with its console output if it is not."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start the process; a member of a larger quorum is ready only after a majority runs."""
        assert self._process is None, "the broker runs already"
        command = [*self._java("kafka.Kafka"), str(self.directory / "server.properties")]
        self._process = OwnedProcess(command, console=self.console, quiet=True)

    def wait_ready(self) -> None:
        """Wait until the broker is ready. Raise RuntimeError with its console output if it is not."""
        assert self._process is not None, "the broker is not running"
        deadline = time.monotonic() + self._start_seconds_max
        while not is_ready(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Kafka did not start:\n{self.console.read_text(encoding='utf-8')[-4000:]}")
            time.sleep(PROBE_INTERVAL_SECONDS)  # only a request shows that the broker is ready

    @property
    def runs(self) -> bool:
        return self._process is not None

    def kill(self) -> None:
        """SIGKILL; what the page cache holds survives."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def stop(self) -> None:
        """SIGTERM and wait: Kafka's controlled shutdown."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.remove)
            self.format()
            self.start()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.remove()

    def remove(self) -> None:
        """Remove a temporary directory."""
        if self._owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _java(self, main: str, *arguments: str) -> list[str]:
        if not self._jars.is_dir():
            raise RuntimeError(f"{self._jars} is missing: run `make setup`")
        return ["java", self._heap, "-XX:+UseG1GC", "-cp", f"{self._jars}/*", main, *arguments]

    def _properties(self) -> dict[str, str]:
        further = "".join(f",{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        protocols = "".join(f",{name}:{protocol}" for name, protocol in self._protocols.items())
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}{further}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}{further}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
            "log.dirs": str(self.data_directory),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        } | self._overrides


def main() -> None:
    parser = argparse.ArgumentParser(description="Run one Apache Kafka broker until Ctrl-C.")
    parser.add_argument("--port", type=int, default=None, help="client port (a free one by default)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that `kill` cleans up as Ctrl-C does
    with KafkaBroker(port=arguments.port) as broker:
        print(f"ready {broker.bootstrap} pid {broker.pid}", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("stopping", flush=True)


if __name__ == "__main__":
    main()
