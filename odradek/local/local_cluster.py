"""`LocalCluster`: real brokers as child processes, for tests and for programs that need a temporary cluster."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from odradek.local.directory import DEFAULT_HOST, ClusterDirectory, ClusterState
from odradek.local.launch import (
    StartOptions,
    launch,
    make_plan,
    mark_own_stopped,
    mark_stopped,
    refuse_running,
    refuse_stopping,
    require_supported_platform,
)
from odradek.local.plan import BROKERS_MAX, Plan
from odradek.local.processes import STOP_TIMEOUT_S, BrokerNotRunning, BrokerProcess, Lifeline
from odradek.local.readiness import complete_start
from odradek.local.security import Security, client_config
from odradek.local.startup import stop_after_failed_start, wait_ready
from odradek.local.stopping import killed_message, stop_all

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from odradek.local.ports import ReservedPorts
    from odradek.local.processes import ProcessId


class LocalCluster:
    """A cluster on this machine, to use as a context manager, as an async context manager, or by its methods.

    Example:
        ```python
        with LocalCluster(brokers=3) as cluster:
            producer = Producer({"bootstrap.servers": cluster.bootstrap})
            cluster.kill(1)
            cluster.start(1)
        ```

    All brokers terminate when this process terminates, even if it is killed. A broker keeps its port when it is
    restarted, so that clients find it again. Clusters of three and more brokers have a replication factor of 3 and
    min.insync.replicas=2, unless `settings` has other values. New groups do not wait for further members
    (group.initial.rebalance.delay.ms=0).

    Args:
        brokers: Number of brokers. Their node ids are 1, 2, ...
        directory: Directory for configuration, data and logs. None selects a temporary one, which `close` removes. No
            other process may run brokers of the directory.
        host: Address that the brokers listen on.
        port: Port of the first broker; the other brokers have the next ports. 0 selects free ports.
        settings: Properties of all brokers, by Kafka's names.
        broker_settings: Properties of single brokers, such as `{2: {"broker.rack": "b"}}`. They override `settings`.
        stop_timeout_s: Seconds without progress after which a stopping broker is killed.
        security: `ssl`, `mtls` or `sasl_ssl`, or a `Security` with the names of users. The cluster makes certificates
            and passwords, and `client_config` returns the settings of clients. None: plain text, or as in the
            directory.

    Raises:
        ValueError: The number of brokers is out of range, or the security is invalid.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        directory: Path | str | None = None,
        host: str = DEFAULT_HOST,
        port: int = 0,
        settings: Mapping[str, object] | None = None,
        stop_timeout_s: float = STOP_TIMEOUT_S,
        security: Security | str | None = None,
        broker_settings: Mapping[int, Mapping[str, object]] | None = None,
    ) -> None:
        if not 1 <= brokers <= BROKERS_MAX:
            raise ValueError(f"brokers={brokers}: the number must be between 1 and {BROKERS_MAX}")
        self._temporary = tempfile.TemporaryDirectory(prefix="odradek-") if directory is None else None
        self.directory = ClusterDirectory(Path(self._temporary.name if self._temporary else str(directory)))
        self.node_ids = list(range(1, brokers + 1))
        pairs = tuple(f"{name}={value}" for name, value in (settings or {}).items())
        self._stop_timeout_s = stop_timeout_s
        secured = Security(security) if isinstance(security, str) else security
        of_brokers = tuple(
            (node_id, f"{name}={value}")
            for node_id, own in (broker_settings or {}).items()
            for name, value in own.items()
        )
        self._options = StartOptions(brokers, host, port, pairs, secured, of_brokers)
        self._plan: Plan | None = None
        self._lifeline: Lifeline | None = None
        self._processes: dict[int, BrokerProcess] = {}

    @property
    def plan(self) -> Plan:
        """Identity and addresses of the cluster. The cluster must have been started."""
        assert self._plan is not None, "not started yet"
        return self._plan

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers, including those that do not run: `host:port,...`."""
        return self.plan.bootstrap

    def endpoint(self, node_id: int) -> str:
        """Return the address of one broker: `host:port`."""
        self.require_broker(node_id)
        return self.plan.endpoint(node_id)

    def client_config(self, kind: str, user: str | None = None) -> dict[str, Any]:
        """Return the settings of a client library by its own names, with the addresses of the brokers.

        Args:
            kind: `java`, `confluent`, `kafka-python`, `aiokafka` or `spark`.
            user: Name of a user; None: the administrator. Clients of a cluster without users have none.

        Raises:
            ValueError: The library or the user does not exist.
        """
        return client_config(kind, self.bootstrap, self.plan.security, self.directory.security_files, user)

    def start(self, node_id: int | None = None) -> None:
        """Start one broker, or all that do not run, and wait until a transaction can commit.

        A broker becomes ready only while a majority of the voters runs. If a majority is down, start all brokers with
        one call. Raise BrokerFailed if a broker does not start, or if brokers of the directory run that another process
        has started; the message has the reason.
        """
        if node_id is not None:
            self.require_broker(node_id)
        requested = self.node_ids if node_id is None else [node_id]
        try:
            self._start([number for number in requested if not self.is_running(number)])
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
                until_ready.enter_context(self.directory.exclusive_start())
                until_ready.enter_context(self._make_plan())
            state = self.directory.read_state()
            assert state is not None
            refuse_running(self.directory, state, self._identities())
            started = launch(self.directory, state, node_ids, self._lifeline.reader, test_hooks=self._test_hooks)
            self._processes |= {process.node_id: process for process in started}
            try:
                wait_ready(started)
                complete_start(self.directory, state, node_ids)
            except BaseException:
                stop_after_failed_start(started)
                raise
        self.directory.change_state(lambda current: current.with_formed(node_ids))

    def _test_hooks(self, node_id: int) -> int | None:
        """Return the descriptor of a socket for fault injection into a broker that is about to start, or None."""
        return None

    def _make_plan(self) -> ReservedPorts:
        last = self.directory.read_state()
        if last is not None:
            refuse_running(self.directory, last)
            refuse_stopping(self.directory, last, last.plan.node_ids)
        self._plan, reserved = make_plan(self.directory, last, self._options)
        self.directory.write_state(ClusterState(self._plan, formed=last.formed if last else []))
        return reserved

    def stop(self, node_id: int) -> int:
        """Stop a broker with a controlled shutdown, and return its exit code.

        The exit code is -9 if the stop made no progress for `stop_timeout_s` seconds and the broker was killed. Raise
        BrokerNotRunning if it is down.
        """
        return self._marked_stopped(node_id).stop(self._stop_timeout_s)

    def kill(self, node_id: int) -> None:
        """Kill a broker with SIGKILL. Raise BrokerNotRunning if it is down."""
        self._marked_stopped(node_id).kill()

    def restart(self, node_id: int) -> None:
        """Stop a broker with a controlled shutdown, and start it again with the same port and data."""
        self.stop(node_id)
        self.start(node_id)

    def pause(self, node_id: int) -> None:
        """Stop the execution of a broker (SIGSTOP). Its connections stay open, and it does not respond."""
        self._running(node_id).signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """Continue the execution of a paused broker (SIGCONT)."""
        self._running(node_id).signal(signal.SIGCONT)

    def is_running(self, node_id: int) -> bool:
        """Return True if the broker's process exists. A paused broker counts."""
        process = self._processes.get(node_id)
        return process is not None and process.poll() is None

    def pid(self, node_id: int) -> int:
        """Return the process id of a broker. Raise BrokerNotRunning if it is down."""
        return self._running(node_id).identity.pid

    def log(self, node_id: int) -> str:
        """Return the content of a broker's log file."""
        self.require_broker(node_id)
        return self.directory.log(node_id).read_text()

    def close(self) -> None:
        """Stop all brokers, and remove the directory if it is temporary.

        Issue a RuntimeWarning for each broker that was killed. If the wait is interrupted, kill all brokers. Raise
        BrokerFailed if a broker still runs after SIGKILL.
        """
        try:
            killed = stop_all(list(self._processes.values()), self._stop_timeout_s)
        finally:
            if self._lifeline is not None:
                self._lifeline.close()
                self._lifeline = None
            if self._temporary is not None:
                self._temporary.cleanup()
            elif self._plan is not None and self.directory.state_file.exists():
                # A start that failed has removed a new directory.
                mark_own_stopped(self.directory, self._identities())
        for node_id in killed:
            warnings.warn(killed_message(node_id, self._stop_timeout_s), RuntimeWarning, stacklevel=2)

    def _identities(self) -> list[ProcessId]:
        """Return the processes that this object has started last, also those that have ended."""
        return [process.identity for process in self._processes.values()]

    def require_broker(self, node_id: int) -> None:
        """Raise ValueError if the cluster has no broker with this node id."""
        if node_id not in self.node_ids:
            known = ", ".join(map(str, self.node_ids))
            raise ValueError(f"broker {node_id!r} does not exist; the brokers are {known}")

    def _running(self, node_id: int) -> BrokerProcess:
        self.require_broker(node_id)
        if not self.is_running(node_id):
            raise BrokerNotRunning(f"broker {node_id} is not running; see {self.directory.log(node_id)}")
        return self._processes[node_id]

    def _marked_stopped(self, node_id: int) -> BrokerProcess:
        process = self._running(node_id)
        mark_stopped(self.directory, [node_id])
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
