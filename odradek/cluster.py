"""``LocalCluster``: real brokers as child processes, for tests and programs that need a cluster for a while."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from odradek.directory import DEFAULT_HOST, ClusterDirectory
from odradek.processes import BrokerCommand, BrokerDied, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

BROKERS_MAX = 1  # a cluster of one node id; more need agreement between brokers


class LocalCluster:
    """A cluster on this machine, usable as a context manager, an async context manager, or by its methods.

    Example:
        ```python
        with LocalCluster() as cluster:
            producer = Producer({"bootstrap.servers": cluster.bootstrap})
            cluster.kill(1)
            cluster.start(1)
        ```

    Brokers end with the process that made the cluster, whatever ends it. Ports are kept over restarts, so clients find
    their broker again. Without ``directory`` the data lies in a temporary one that is removed at the end.

    Args:
        brokers: how many; their node ids are 1, 2, ...
        directory: where configuration, data and logs lie.
        port: of the first broker, the others follow; 0 takes free ones.
        settings: configuration by Kafka's dotted names, for every broker.

    Raises:
        ValueError: a number of brokers that cannot be started.
        BrokerFailed: (start) a broker could not be started; the message is its reason.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        directory: Path | str | None = None,
        host: str = DEFAULT_HOST,
        port: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        if not 1 <= brokers <= BROKERS_MAX:
            raise ValueError(f"brokers={brokers}: between 1 and {BROKERS_MAX} can be started")
        self._temporary = tempfile.TemporaryDirectory(prefix="odradek-") if directory is None else None
        self.directory = ClusterDirectory(Path(self._temporary.name if self._temporary else str(directory)))
        self.node_ids = list(range(1, brokers + 1))
        self.settings = {name: str(value) for name, value in (settings or {}).items()}
        self._host = host
        self._ports = {node_id: port + node_id - 1 if port else 0 for node_id in self.node_ids}
        self._processes: dict[int, BrokerProcess] = {}

    @property
    def bootstrap(self) -> str:
        """``host:port,...`` of all brokers that were started, running or not."""
        return ",".join(f"{self._host}:{self._ports[node_id]}" for node_id in self.node_ids)

    def start(self, node_id: int | None = None) -> None:
        """Start one broker, or all, and wait until a transaction could commit."""
        wanted = self.node_ids if node_id is None else [node_id]
        started = [number for number in wanted if not self.is_running(number)]
        try:
            for number in started:
                config = self.directory.write_config(number, self._host, self._ports[number])
                settings = tuple(f"{name}={value}" for name, value in self.settings.items())
                command = BrokerCommand(config, self.directory.log(number), detached=False, settings=settings)
                self._processes[number] = BrokerProcess(command)
            for number in started:
                endpoint = self._processes[number].wait_ready()
                self._ports[number] = int(endpoint.rpartition(":")[2])
        except BaseException:
            self.close()
            raise

    def stop(self, node_id: int) -> int:
        """Stop a broker cleanly; returns its exit code."""
        return self._running(node_id).stop()

    def kill(self, node_id: int) -> None:
        """Kill a broker with SIGKILL."""
        self._running(node_id).kill()

    def restart(self, node_id: int) -> None:
        """Stop a broker cleanly and start it again on its port and data."""
        self.stop(node_id)
        self.start(node_id)

    def pause(self, node_id: int) -> None:
        """Stop a broker's execution (SIGSTOP): alive for the network, silent for its peers."""
        self._running(node_id).signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """Let a paused broker run on (SIGCONT)."""
        self._running(node_id).signal(signal.SIGCONT)

    def is_running(self, node_id: int) -> bool:
        process = self._processes.get(node_id)
        return process is not None and process.poll() is None

    def pid(self, node_id: int) -> int:
        return self._running(node_id).identity.pid

    def log(self, node_id: int) -> str:
        """What the broker has said so far."""
        return self.directory.log(node_id).read_text()

    def close(self) -> None:
        """Stop every broker and remove a temporary directory."""
        for process in self._processes.values():
            process.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _running(self, node_id: int) -> BrokerProcess:
        if not self.is_running(node_id):
            raise BrokerDied(f"broker {node_id} is not running; see {self.directory.log(node_id)}")
        return self._processes[node_id]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)
