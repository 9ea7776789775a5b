"""Nodes as processes of their own, each with a properties file, and Kafka's files with other ports and directories."""

from __future__ import annotations

import select
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from odradek.local.processes import BrokerCommand, BrokerFailed, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

KAFKA_FILES = Path(__file__).resolve().parents[1] / "interop" / "data" / "kafka_config"
"""Properties of Kafka's files server.properties, broker.properties and controller.properties."""
CLIENT_PORT, CONTROLLER_PORT = "9092", "9093"
"""Ports in Kafka's files."""
READY_WITHIN_S = 60.0


def kafka_file(name: str, data: Path, *, client_port: int = 0, controller_port: int = 0) -> str:
    """Return the text of a file of Kafka with these ports and this data directory, and otherwise unchanged."""
    lines = []
    for line in (KAFKA_FILES / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("log.dirs="):
            lines.append(f"log.dirs={data}")
            continue
        is_address = "://" in line or line.startswith("controller.quorum.")
        changed = line.replace(f":{CLIENT_PORT}", f":{client_port}").replace(
            f":{CONTROLLER_PORT}", f":{controller_port}"
        )
        lines.append(changed if is_address else line)
    return "".join(f"{line}\n" for line in lines)


class ConfiguredNodes:
    """Context manager around nodes, by name. All of them are killed at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._texts: dict[str, str] = {}
        self._processes: dict[str, BrokerProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            with suppress(BrokerFailed):
                process.kill()

    def launch(self, name: str, text: str) -> None:
        """Start a node. It is not ready when this returns."""
        self._texts[name] = text
        config = self.directory / f"{name}.properties"
        config.write_text(text, encoding="utf-8")
        self._processes[name] = BrokerProcess(BrokerCommand(0, config, self.log(name)))

    def start(self, name: str, text: str) -> str:
        """Start a node, and return the addresses of its ready line."""
        self.launch(name, text)
        return self.wait_ready([name])[name]

    def restart(self, name: str) -> str:
        """Start a node again that was killed."""
        return self.start(name, self._texts[name])

    def wait_ready(self, names: Iterable[str]) -> dict[str, str]:
        """Wait until these nodes are ready. Return the addresses of their ready lines."""
        waiting = {self._processes[name].fileno(): name for name in names}
        addresses: dict[str, str] = {}
        until = time.monotonic() + READY_WITHIN_S
        while waiting:
            readable, _, _ = select.select(list(waiting), [], [], max(0.0, until - time.monotonic()))
            assert readable, f"not ready: {', '.join(waiting.values())}"
            for descriptor in readable:
                process = self._processes[waiting[descriptor]]
                if process.is_ready():
                    addresses[waiting.pop(descriptor)] = process.endpoint
        return addresses

    def kill(self, name: str) -> None:
        self._processes[name].kill()

    def stop(self, name: str) -> int:
        """Stop a node cleanly. Return its exit code."""
        return self._processes[name].stop()

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"
