"""Failure-detector driver over real UDP sockets, on asyncio's loop and on uvloop. Tests wait for events."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING, Any

import pytest
import structlog
import uvloop

from odradek.cluster.membership.driver import DATAGRAMS_PER_TURN, OUTGOING_MAX
from odradek.cluster.membership.messages import Codec, Ping, Rejected
from odradek.cluster.membership.transitions import State
from odradek.runtime.tasks import Tasks
from tests.support.membership_process import HOST, member
from tests.support.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from odradek.cluster.membership.driver import MembershipDriver
    from odradek.cluster.membership.members import Change

ROOT = Path(__file__).resolve().parents[4]
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
UNTIL_S = 30


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Coroutine[Any, Any, None]], None]]:
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:

        def bounded(coro: Coroutine[Any, Any, None]) -> None:
            runner.run(asyncio.wait_for(coro, UNTIL_S))

        yield bounded


class Cluster:
    """Drivers in one process over real sockets."""

    def __init__(self, count: int, host: str = HOST) -> None:
        self.host = host
        self.ports = free_ports(count)
        self.errors: list[tuple[str, BaseException]] = []
        self.tasks = Tasks(lambda name, error: self.errors.append((name, error)))
        self.changes: asyncio.Queue[tuple[int, Change]] = asyncio.Queue()
        self.drivers: dict[int, MembershipDriver] = {}

    async def start(self, *node_ids: int, cluster: str = "a cluster") -> None:
        for node_id in node_ids:
            driver = member(
                node_id,
                self.ports,
                self.tasks,
                lambda change, node_id=node_id: self.changes.put_nowait((node_id, change)),  # type: ignore[misc]
                cluster=cluster,
                host=self.host,
            )
            self.drivers[node_id] = driver
            await driver.start(HOST, self.ports[node_id - 1])

    async def until(self, *expected: tuple[int, int, State]) -> None:
        """Wait until each (observer, subject) has reached its state."""
        missing = list(expected)
        while missing:
            node_id, change = await self.changes.get()
            missing = [row for row in missing if row != (node_id, change.node_id, change.state)]

    async def end(self) -> None:
        for driver in self.drivers.values():
            driver.close()
        await self.tasks.cancel_all()
        await turns(3)  # transports close in a later iteration of the loop
        assert self.errors == []


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_silent_member_fails_and_a_started_one_is_alive_again(run: Any) -> None:
    async def scenario() -> None:
        cluster = Cluster(3)
        await cluster.start(1, 2)
        await cluster.until((1, 3, State.FAILED), (2, 3, State.FAILED))
        await cluster.start(3)
        await cluster.until((1, 3, State.ALIVE), (2, 3, State.ALIVE))
        states = {row.node_id: row.state for row in cluster.drivers[1].view()}
        assert states == {2: State.ALIVE, 3: State.ALIVE}
        await cluster.end()

    run(scenario())


@pytest.mark.parametrize("part", ["decode", "encode"])
def test_datagrams_go_on_after_an_unexpected_exception(run: Any, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        await cluster.start(1)
        codec = cluster.drivers[1]._codec
        original, failed = getattr(codec, part), asyncio.Event()

        def fail_once(*arguments: Any) -> Any:
            if failed.is_set():
                return original(*arguments)
            failed.set()
            raise RuntimeError("injected")

        monkeypatch.setattr(codec, part, fail_once)
        await cluster.start(2)
        await failed.wait()
        before = cluster.drivers[1].traffic.received
        while cluster.drivers[1].traffic.received < before + 2:
            await asyncio.sleep(0.01)
        errors, cluster.errors = cluster.errors, []
        assert [str(error) for _, error in errors] == ["injected"]
        await cluster.end()

    run(scenario())


def test_host_names_are_resolved(run: Any) -> None:
    async def scenario() -> None:
        cluster = Cluster(3, "localhost")
        await cluster.start(1, 2)
        early = Codec("a cluster").encode(Ping(2, 1, 2, 0, 1), 0, 1)
        cluster.drivers[1]._take(early, (HOST, cluster.ports[1]))
        assert cluster.drivers[1].traffic.dropped[Rejected.ADDRESS] == 1, "the name is not resolved yet"
        await cluster.until((1, 3, State.FAILED))
        assert cluster.drivers[1].view()[0].state is not State.FAILED
        assert cluster.drivers[2].traffic.received > 0
        await cluster.end()

    with structlog.testing.capture_logs() as logs:
        run(scenario())
    assert not [row for row in logs if row["event"] == "datagram dropped"]


def test_datagrams_of_another_cluster_are_dropped_and_counted(run: Any) -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        await cluster.start(1)
        await cluster.start(2, cluster="another")
        await cluster.until((1, 2, State.FAILED), (2, 1, State.FAILED))
        for driver in cluster.drivers.values():
            assert driver.traffic.received == 0
            assert driver.traffic.rejected > 0
        await cluster.end()

    run(scenario())


def test_ping_of_an_unknown_node_is_acknowledged_at_its_source_address(run: Any) -> None:
    async def scenario() -> None:
        cluster = Cluster(1)
        await cluster.start(1)
        loop = asyncio.get_running_loop()
        received = loop.create_future()

        class UnknownNode(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: Any) -> None:
                if not received.done():
                    received.set_result(data)

        transport, _ = await loop.create_datagram_endpoint(UnknownNode, remote_addr=(HOST, cluster.ports[0]))
        transport.sendto(Codec("a cluster").encode(Ping(9, 1, 9, 0, 1), 0, 1))
        assert await received
        transport.close()
        await cluster.end()

    run(scenario())


def test_datagrams_above_the_limit_of_one_iteration_are_dropped() -> None:
    """asyncio-dgram has an unbounded queue. One iteration of the loop empties it and processes a bounded part."""

    async def scenario() -> None:
        cluster = Cluster(1)
        await cluster.start(1)
        driver = cluster.drivers[1]
        for _ in range(10 * DATAGRAMS_PER_TURN):
            driver._stream._recvq.put_nowait((b"garbage", ("127.0.0.1", 9)))
        await turns(2)
        assert driver._stream._recvq.empty()
        assert driver.traffic.rejected == DATAGRAMS_PER_TURN
        assert driver.traffic.overflow == 9 * DATAGRAMS_PER_TURN
        await turns(2)
        driver._stream._recvq.put_nowait((b"garbage", ("127.0.0.1", 9)))
        await turns(2)
        assert driver.traffic.rejected == DATAGRAMS_PER_TURN + 1
        await cluster.end()

    asyncio.run(scenario())


def test_acknowledgments_that_cannot_be_sent_are_bounded() -> None:
    async def scenario() -> None:
        cluster = Cluster(1)
        await cluster.start(1)
        driver = cluster.drivers[1]
        for sequence in range(OUTGOING_MAX + 10):
            driver._take(Codec("a cluster").encode(Ping(9, 1, 9, 0, sequence), 0, sequence), ("127.0.0.1", 9))
        assert driver.traffic.overflow == 10
        await cluster.end()

    asyncio.run(scenario())


def test_error_of_one_datagram_does_not_stop_the_next() -> None:
    """asyncio-dgram raises the error of an earlier datagram in place of sending the next one to any target."""

    async def scenario() -> None:
        cluster = Cluster(2)
        await cluster.start(1, 2)
        driver = cluster.drivers[1]
        for _ in range(3):
            driver._stream._excq.put_nowait(OSError(113, "no route to host"))
        before = driver.traffic.sent
        driver._outgoing.put_nowait((Ping(1, 2, 1, 0, 1), None))
        await turns(5)
        assert driver.traffic.errors == 3
        assert driver.traffic.sent > before
        await cluster.end()

    asyncio.run(scenario())


def test_port_in_use_raises_os_error() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        await cluster.start(1)
        cluster.ports[1] = cluster.ports[0]
        with pytest.raises(OSError, match="in use"):
            await cluster.start(2)
        await cluster.end()

    asyncio.run(scenario())


def test_processes_detect_kill_stop_and_continue() -> None:
    """Sends SIGKILL, SIGSTOP and SIGCONT to real processes on uvloop."""
    ports = free_ports(3)
    arguments = [str(port) for port in ports]
    processes = {
        node_id: Popen(
            [sys.executable, "-m", "tests.support.membership_process", str(node_id), *arguments],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT)},
            stdin=PIPE,
            stdout=PIPE,
            text=True,
        )
        for node_id in (1, 2, 3)
    }

    def until(node_id: int, line: str) -> list[str]:
        out = processes[node_id].stdout
        assert out is not None
        lines: list[str] = []
        while not lines or not lines[-1].startswith(line):
            lines.append(out.readline().strip())
            assert lines[-1], f"{node_id} has ended without {line!r}: {lines}"
        return lines

    try:
        for node_id in processes:
            until(node_id, "ready")
        processes[3].send_signal(signal.SIGSTOP)
        assert not any("1 failed" in line for line in until(2, "3 failed"))
        until(1, "3 failed")
        processes[3].send_signal(signal.SIGCONT)
        until(1, "3 alive")
        until(2, "3 alive")
        processes[2].kill()
        until(1, "2 failed")
        assert "1 failed" not in " ".join(until(3, "2 failed"))
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
