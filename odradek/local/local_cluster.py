"""``LocalCluster``: real brokers as child processes, for tests and programs that need a cluster for a while."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from odradek.local.directory import DEFAULT_HOST, ClusterDirectory, ClusterState
from odradek.local.launch import Wanted, forget, launch, make_plan, require_supported_platform
from odradek.local.plan import BROKERS_MAX, Plan
from odradek.local.processes import BrokerDied, BrokerProcess, Lifeline
from odradek.local.readiness import await_serving
from odradek.local.startup import abandon, stop_all, wait_ready

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from odradek.local.ports import HeldPorts


class LocalCluster:
    """A cluster on this machine, usable as a context manager, an async context manager, or by its methods.

    Example:
        ```python
        with LocalCluster(brokers=3) as cluster:
            producer = Producer({"bootstrap.servers": cluster.bootstrap})
            cluster.kill(1)
            cluster.start(1)
        ```

    Brokers end with the process that made the cluster, whatever ends it. Ports are kept over restarts, so clients find
    their brokers again. Without ``directory`` the data lies in a temporary one that is removed at the end. From three brokers on
    topics have three replicas, two of which must have a record, unless ``settings`` say otherwise.

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
        pairs = tuple(f"{name}={value}" for name, value in (settings or {}).items())
        self._wanted = Wanted(brokers, host, port, pairs)
        self._plan: Plan | None = None
        self._lifeline: Lifeline | None = None
        self._processes: dict[int, BrokerProcess] = {}

    @property
    def plan(self) -> Plan:
        """Identity and addresses; there once the cluster has been started."""
        assert self._plan is not None, "not started yet"
        return self._plan

    @property
    def bootstrap(self) -> str:
        """``host:port,...`` of all brokers, running or not."""
        return self.plan.bootstrap

    def endpoint(self, node_id: int) -> str:
        """``host:port`` of one broker."""
        return self.plan.endpoint(node_id)

    def start(self, node_id: int | None = None) -> None:
        """Start one broker, or all that do not run, and wait until a transaction could commit.

        One broker is ready only with a majority of the voters: to bring back several, start them together.
        """
        wanted = self.node_ids if node_id is None else [node_id]
        try:
            self._start([number for number in wanted if not self.is_running(number)])
        except BaseException:
            if node_id is None:
                self.close()
            raise

    def _start(self, node_ids: list[int]) -> None:
        require_supported_platform()
        with ExitStack() as until_ready:
            if self._lifeline is None:
                self._lifeline = Lifeline()
            if self._plan is None:
                until_ready.enter_context(self._make_plan())
            state = self.directory.read_state()
            assert state is not None
            started = launch(self.directory, state, node_ids, self._lifeline.reader)
            self._processes |= {process.node_id: process for process in started}
            try:
                wait_ready(started)
                if state.formed and node_ids == self.node_ids:
                    await_serving(self.bootstrap, len(node_ids))
            except BaseException:
                abandon(started)
                raise
        self.directory.change_state(lambda current: current.ready(node_ids))

    def _make_plan(self) -> HeldPorts:
        before = self.directory.read_state()
        self._plan, held = make_plan(self.directory, before, self._wanted)
        self.directory.write_state(ClusterState(self._plan, formed=before.formed if before else []))
        return held

    def stop(self, node_id: int) -> int:
        """Stop a broker cleanly; returns its exit code."""
        return self._leaving(node_id).stop()

    def kill(self, node_id: int) -> None:
        """Kill a broker with SIGKILL."""
        self._leaving(node_id).kill()

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
        stop_all(list(self._processes.values()))
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None
        if self._temporary is not None:
            self._temporary.cleanup()
        elif self._plan is not None:
            forget(self.directory, self.node_ids)

    def _running(self, node_id: int) -> BrokerProcess:
        if not self.is_running(node_id):
            raise BrokerDied(f"broker {node_id} is not running; see {self.directory.log(node_id)}")
        return self._processes[node_id]

    def _leaving(self, node_id: int) -> BrokerProcess:
        process = self._running(node_id)
        forget(self.directory, [node_id])
        return process

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
