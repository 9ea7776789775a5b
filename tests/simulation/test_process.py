"""Exit, tasks, exception handler and logs of one simulated process of an application."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import os
import socket
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from structlog import configure

from odradek.simulation import Escaped, Fault, Result, run
from odradek.simulation.environment.loop import TASKS_BEFORE_PRUNING
from odradek.simulation.errors import RunFailed
from odradek.simulation.faults import CRASH
from odradek.simulation.forks import run_forked
from odradek.simulation.loop import ApplicationLoop
from odradek.simulation.setup import Setup

if TYPE_CHECKING:
    from odradek.simulation import Sim

needs_hash_seed = pytest.mark.skipif(os.environ.get("PYTHONHASHSEED") != "0", reason="needs PYTHONHASHSEED=0")


def texts(result: Result) -> list[str]:
    """Return the texts of the events of the application."""
    return [event.text for event in result.events if event.source.startswith("application-")]


@needs_hash_seed
def test_system_exit_of_any_task_ends_the_process_and_code_0_finishes_it() -> None:
    async def exits(code: int) -> None:
        sys.exit(code)

    async def app(sim: Sim) -> None:
        sim.record("start", sim.incarnation)
        if sim.incarnation == 1:
            sys.exit(3)
        waiting = asyncio.create_task(exits(4 if sim.incarnation == 2 else 0))
        await asyncio.sleep(100)
        sim.record("still runs", waiting.done())

    result = run(app, brokers=1, faults=())
    assert result.passed
    assert result.state is not None
    assert result.state.finished
    assert [report.value for report in result.state.reports] == [1, 2, 3]
    assert [text for text in texts(result) if "SystemExit" in text] == ["fails: SystemExit: 3", "fails: SystemExit: 4"]


@needs_hash_seed
def test_process_has_its_own_tasks_and_exception_handler() -> None:
    async def app(sim: Sim) -> None:
        def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            sim.record("handled", type(context["exception"]))

        asyncio.get_running_loop().set_exception_handler(handle)
        asyncio.get_running_loop().call_soon(int, "no number")
        own = asyncio.create_task(asyncio.sleep(100))
        await asyncio.sleep(1)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        sim.record("others", others == {own})
        for task in others:
            task.cancel()

    result = run(app, brokers=1, faults=())
    assert result.passed
    assert result.state is not None
    assert result.state.reported("handled") == [ValueError]
    assert result.state.reported("others") == [True]
    assert texts(result).count("a callback fails: ValueError: invalid literal for int() with base 10: 'no number'") == 1


@needs_hash_seed
def test_task_with_a_new_context_ends_with_its_process() -> None:
    async def beats(sim: Sim, ticks: list[int]) -> None:
        while True:
            await asyncio.sleep(0.5)
            ticks.append(sim.incarnation)

    ticks: list[int] = []

    async def app(sim: Sim) -> None:
        beating = None
        if sim.incarnation == 1:
            beating = asyncio.create_task(beats(sim, ticks), context=contextvars.Context())
        await asyncio.sleep(3)
        assert beating is None

    assert run(app, brokers=1, faults=[Fault(CRASH, at=1.2, seconds=0.1)]).passed
    assert ticks == [1, 1]


@needs_hash_seed
def test_stop_of_the_loop_ends_the_process_unless_its_coroutine_returns() -> None:
    async def app(sim: Sim) -> None:
        sim.record("start", sim.incarnation)
        if sim.incarnation == 1:
            asyncio.get_running_loop().call_soon(sim.record, "scheduled", 1)
        asyncio.get_running_loop().stop()
        if sim.incarnation == 1:
            await asyncio.sleep(100)
            sim.record("continued", sim.now())

    result = run(app, brokers=1, faults=())
    assert result.passed
    assert result.state is not None
    assert result.state.finished
    assert [(report.kind, report.value) for report in result.state.reports] == [
        ("start", 1),
        ("scheduled", 1),
        ("start", 2),
    ]
    assert "fails: RuntimeError: Event loop stopped before Future completed." in texts(result)


@needs_hash_seed
def test_other_event_loop_has_no_tasks_of_the_process() -> None:
    async def app(sim: Sim) -> None:
        loop = asyncio.new_event_loop()
        sim.record("tasks", (len(asyncio.all_tasks(loop)), len(asyncio.all_tasks(asyncio.get_running_loop()))))
        loop.close()

    result = run(app, brokers=1, faults=())
    assert result.state is not None
    assert result.state.reported("tasks") == [(0, 1)]


class _Identified:
    """An application that reads its process id and the name of its host when it is created."""

    def __init__(self) -> None:
        self.created = os.getpid(), socket.gethostname()

    async def main(self, sim: Sim) -> None:
        sim.record("identity", self.created)
        assert self.created == (os.getpid(), socket.gethostname())
        if sim.incarnation == 1:
            sys.exit(1)


@needs_hash_seed
def test_process_id_and_host_name_are_those_of_the_simulated_process() -> None:
    result = run(_Identified, brokers=1, faults=(), instances=2)
    assert result.passed
    assert result.state is not None
    identities = [report.value for report in sorted(result.state.reports, key=lambda report: report.instance)]
    assert identities == [
        (10_001, "application-1"),
        (10_002, "application-1"),
        (20_001, "application-2"),
        (20_002, "application-2"),
    ]


@needs_hash_seed
@pytest.mark.parametrize("interface", ["127.0.0.1", "0.0.0.0"])
def test_each_instance_reaches_its_own_server_at_the_same_port(interface: str) -> None:
    async def app(sim: Sim) -> None:
        async def respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"%d\n" % sim.instance)

        await asyncio.start_server(respond, interface, 8080)
        await asyncio.sleep(1)
        reader, _ = await asyncio.open_connection("localhost", 8080)
        assert await reader.readline() == b"%d\n" % sim.instance

    assert run(app, brokers=1, faults=(), instances=2).passed


class _FailsFirst:
    """An application whose first two objects are not created."""

    created = 0

    def __init__(self) -> None:
        _FailsFirst.created += 1
        if _FailsFirst.created < 3:
            raise ValueError("planted")

    async def main(self, sim: Sim) -> None:
        sim.record("start", sim.incarnation)


@needs_hash_seed
def test_class_of_an_application_that_fails_is_called_again_after_a_second() -> None:
    result = run(_FailsFirst, brokers=1, faults=())
    assert result.passed
    assert result.state is not None
    assert result.state.reported("start") == [3]


@needs_hash_seed
def test_failure_of_a_task_that_nothing_awaits_is_an_event_and_a_failed_assertion_is_a_finding() -> None:
    async def fails(error: Exception) -> None:
        raise error

    async def app(sim: Sim) -> None:
        sim.durable["tasks"] = [
            asyncio.create_task(fails(error)) for error in (ValueError("planted"), AssertionError("wrong stock"))
        ]
        await asyncio.sleep(1)

    result = run(app, brokers=1, faults=())
    name = test_failure_of_a_task_that_nothing_awaits_is_an_event_and_a_failed_assertion_is_a_finding.__name__
    task = f"{name}.<locals>.fails"
    assert f"task {task} failed, and nothing has read its exception: ValueError: planted" in texts(result)
    (finding,) = result.findings
    assert finding.startswith("application-1: AssertionError: wrong stock (")


@needs_hash_seed
def test_failed_assertion_of_a_task_is_a_finding_also_after_many_later_tasks() -> None:
    async def fails() -> None:
        raise AssertionError("wrong stock")

    async def app(_sim: Sim) -> None:
        asyncio.create_task(fails())  # noqa: RUF006  nothing awaits it
        for _ in range(TASKS_BEFORE_PRUNING + 1):
            await asyncio.create_task(asyncio.sleep(0))

    (finding,) = run(app, brokers=1, faults=()).findings
    assert finding.startswith("application-1: AssertionError: wrong stock (")


class _Step(Coroutine[Any, Any, None]):
    """A coroutine of a class: it has no name of its own."""

    def send(self, value: object) -> None:
        raise ValueError("planted")

    def throw(self, *error: Any) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __await__(self) -> Any:
        raise NotImplementedError


@needs_hash_seed
def test_failure_of_a_coroutine_without_a_name_is_an_event() -> None:
    async def app(sim: Sim) -> None:
        sim.durable["task"] = asyncio.create_task(_Step())
        await asyncio.sleep(1)

    result = run(app, brokers=1, faults=())
    assert result.passed
    assert "task _Step failed, and nothing has read its exception: ValueError: planted" in texts(result)


def test_failed_future_belongs_to_its_process_whichever_node_collects_it() -> None:
    loop = ApplicationLoop(Random(1))

    async def app() -> None:
        future = loop.create_future()
        future.set_exception(ValueError("planted"))
        future.itself = future  # type: ignore[attr-defined]  # the garbage collector ends a cycle

    async def broker() -> None:
        await asyncio.sleep(1)
        gc.collect()

    loop.spawn("application-1#1", app(), "application-1#1")
    loop.run_until_complete(loop.spawn("broker-1#1", broker(), "broker-1#1"))
    loop.close()
    assert [(failure["node"], str(failure["exception"])) for failure in loop.failures] == [
        ("application-1#1", "planted")
    ]


class _Unclosed:
    """An object that reports to the loop that it was not closed, as the clients of aiokafka do."""

    def __init__(self) -> None:
        self.itself = self  # the garbage collector ends a cycle

    def __del__(self) -> None:
        asyncio.get_running_loop().call_exception_handler({"message": "Unclosed client", "client": self})


class _Running:
    """A process of an application that must receive no report."""

    def on_system_exit(self, error: SystemExit) -> None:
        raise NotImplementedError

    def on_stop(self) -> None:
        raise NotImplementedError

    def on_failure(self, error: BaseException) -> None:
        raise NotImplementedError


def test_report_of_a_finalizer_has_no_effect_whichever_node_collects_the_object() -> None:
    loop = ApplicationLoop(Random(1))
    handled: list[str] = []

    async def collects(node: str) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: handled.append(node))
        _Unclosed()
        gc.collect()

    loop.processes["application-1#1"] = _Running()
    for node in ("application-1#1", "broker-1#1"):
        loop.run_until_complete(loop.spawn(node, collects(node), node))
    loop.close()
    assert (loop.failures, handled) == ([], [])


@needs_hash_seed
@pytest.mark.parametrize("own_name", [False, True])
def test_logs_are_events_also_if_the_process_configures_them(own_name: bool) -> None:
    async def app(sim: Sim) -> None:
        logging.basicConfig(level=logging.INFO)
        (configure if own_name else structlog.configure)(processors=[structlog.processors.JSONRenderer()])
        logging.getLogger("shop").info("order %d", 7)
        logging.getLogger("shop").debug("order %d", 8)
        structlog.get_logger().info("order taken", number=7)

    root = logging.getLogger()
    before = root.level, root.handlers[:]
    result = run(app, brokers=1, faults=())
    assert [text for text in texts(result) if "order" in text] == ["info shop: order 7", "info order taken number=7"]
    assert (root.level, root.handlers) == before


@needs_hash_seed
def test_root_logger_of_a_run_has_the_level_warning_whatever_its_level_before() -> None:
    async def app(_: Sim) -> None:
        logging.getLogger("shop").info("order %d", 7)
        logging.getLogger("shop").warning("order %d", 8)

    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    try:
        result = run(app, brokers=1, faults=())
        assert root.level == logging.INFO
    finally:
        root.setLevel(before)
    assert [text for text in texts(result) if "order" in text] == ["warning shop: order 8"]


@needs_hash_seed
def test_escape_in_a_package_names_the_line_of_the_application() -> None:
    async def app(sim: Sim) -> None:
        await structlog.get_logger().ainfo("order taken", seed=sim.seed)

    through = r"through \S*site-packages/structlog/\S+\.py, line \d+"
    with pytest.raises(Escaped, match=rf"run_in_executor.* \(\S*test_process.py, line \d+, {through}\), which"):
        run(app, brokers=1, faults=())


async def _loops(sim: Sim) -> None:
    while True:
        pass


async def _swallows(sim: Sim) -> None:
    lock = threading.Lock()
    while True:
        with suppress(BaseException):
            lock.acquire()


@needs_hash_seed
@pytest.mark.parametrize("app", [_loops, _swallows])
def test_step_that_does_not_end_is_an_error_with_its_place(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.simulation.forks.CHECK_SECONDS", 1.0)
    place = r"One step of the run has taken 2 s of real time \(\S*test_process.py, line \d+\). Use await in each loop"
    with pytest.raises(RunFailed, match=place):
        run_forked(partial(Setup(app, brokers=1).run, 7))
