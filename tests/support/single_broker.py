"""A broker as a process, with a plaintext listener and further listeners for clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.local.directory import ClusterDirectory
from odradek.local.processes import BrokerCommand, BrokerProcess, Lifeline
from odradek.local.startup import wait_ready
from odradek.local.stopping import stop_all
from tests.support.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Self

START_SECONDS = 60.0


class SingleBroker:
    """The broker. Use it as a context manager."""

    def __init__(self, folder: Path, listeners: Mapping[str, str], settings: Mapping[str, str]) -> None:
        """`listeners` has the security protocol of each further listener. `settings` are further properties."""
        folder.mkdir(parents=True, exist_ok=True)
        self._directory = ClusterDirectory(folder)
        self._lifeline = Lifeline()
        self._process: BrokerProcess | None = None
        protocols = {"PLAINTEXT": "PLAINTEXT", **listeners}
        ports = dict(zip(protocols, free_ports(len(protocols)), strict=True))
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        self.plain = self.addresses["PLAINTEXT"]
        rows = {
            "node.id": "1",
            "log.dirs": str(self._directory.data(1)),
            "listeners": ",".join(f"{name}://{address}" for name, address in self.addresses.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            **settings,
        }
        self._directory.config(1).write_text("".join(f"{name}={value}\n" for name, value in rows.items()))

    def __enter__(self) -> Self:
        try:
            command = BrokerCommand(
                1, self._directory.config(1), self._directory.log(1), lifeline=self._lifeline.reader
            )
            self._process = BrokerProcess(command)
            wait_ready([self._process], timeout_s=START_SECONDS)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            stop_all([self._process])
        self._lifeline.close()

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.identity.pid

    def log(self) -> str:
        return self._directory.log(1).read_text()
