"""Crashes, faults, escapes and reports of an application in a simulation."""

from __future__ import annotations

import asyncio
import calendar
import multiprocessing
import os
import pickle
import random
import secrets
import selectors
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import uuid
from datetime import UTC, datetime
from random import Random
from time import sleep
from time import time as clock
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import SerializingProducer
from confluent_kafka.admin import AdminClient

from odradek.simulation import Escaped, Fault, Faults, Topic, checkers, run
from odradek.simulation.application import FAILURES_MAX
from odradek.simulation.faults import CRASH, CRASH_AT_POINT, ISOLATE, KILL, KINDS, LOSE_RESPONSE, PARTITION, SLOW_LINK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from odradek.simulation import Sim, State

pytestmark = pytest.mark.skipif(os.environ.get("PYTHONHASHSEED") != "0", reason="needs PYTHONHASHSEED=0")


def test_hours_of_virtual_time_pass_in_an_idle_cluster() -> None:
    real = time.time()

    async def app(sim: Sim) -> None:
        before, monotonic = time.time(), time.monotonic()
        await asyncio.sleep(600)
        sim.record("passed", (round(time.time() - before), round(time.monotonic() - monotonic)))

    result = run(app, brokers=1, faults=())
    assert result.state is not None
    assert result.state.reported("passed") == [(600, 600)]
    assert result.virtual_seconds > 600
    assert time.time() > real, "the seams end with the run"
    assert result.passed


def test_crash_ends_the_process_without_its_clean_up_and_starts_it_again() -> None:
    cleaned: list[float] = []

    async def app(sim: Sim) -> None:
        sim.record("start", sim.incarnation)
        sim.durable["starts"] = sim.durable.get("starts", 0) + 1
        try:
            await asyncio.sleep(10)
        finally:
            if not cleaned and sim.incarnation == 1 and sim.now() < 5:
                cleaned.append(sim.now())
        sim.record("done", sim.incarnation)

    result = run(app, brokers=1, faults=[Fault(CRASH, at=2.0, seconds=1.0)])
    assert result.state is not None
    assert result.state.reported("start") == [1, 2]
    assert result.state.reported("done") == [2]
    assert result.state.durable == [{"starts": 2}]
    assert cleaned == []
    done = [report.at for report in result.state.reports if report.kind == "done"]
    assert done == [pytest.approx(13.0, abs=0.1)]


def test_crash_at_a_point_ends_the_process_at_that_point() -> None:
    async def app(sim: Sim) -> None:
        for number in range(5):
            sim.record("before", number)
            await sim.crash_point("step")
        sim.record("done", sim.incarnation)

    async def slow(sim: Sim) -> None:
        await asyncio.sleep(1)
        await app(sim)

    result = run(slow, brokers=1, faults=[Fault(CRASH_AT_POINT, at=0.5, seconds=1.0, other=3)])
    assert result.state is not None
    assert result.state.reported("before") == [0, 1, 2, 0, 1, 2, 3, 4]
    assert "reaches crash point step" in result.explain()


def test_exception_restarts_the_application_and_too_many_are_a_finding() -> None:
    async def app(sim: Sim) -> None:
        await asyncio.sleep(0)
        raise ValueError(sim.incarnation)

    result = run(app, brokers=1, faults=(), until=FAILURES_MAX + 100.0)
    assert [text for text in result.findings if f"failed {FAILURES_MAX + 1} times" in text]


def test_cancelled_application_is_restarted() -> None:
    async def app(sim: Sim) -> None:
        sim.record("start", sim.incarnation)
        if sim.incarnation == 1:
            raise asyncio.CancelledError

    result = run(app, brokers=1, faults=())
    assert result.state is not None
    assert result.state.reported("start") == [1, 2]


def _thread() -> None:
    threading.Thread(target=print).start()


def _real_socket() -> None:
    with socket.socket() as real:
        real.connect(("127.0.0.1", 9))


class _OwnProducer(confluent_kafka.Producer):
    """A subclass, which a module has defined before the run."""


async def _socket_of_a_server() -> None:
    with socket.socket() as real:
        await asyncio.start_server(print, sock=real)


async def _socket_of_datagrams() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as real:
        await asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol, sock=real)


async def _reception() -> None:
    with socket.socket() as real:
        await asyncio.get_running_loop().sock_recv(real, 1)


async def _upgrade_to_tls() -> None:
    _, writer = await asyncio.open_connection(await _address(), 9092)
    await writer.start_tls(ssl.create_default_context())


async def _address() -> str:
    """Return the address of an own server."""
    await asyncio.start_server(print, "0.0.0.0", 9092)
    return "localhost"


def _confluent() -> None:
    confluent_kafka.Producer({"bootstrap.servers": "localhost:9"})


def _selector() -> None:
    with selectors.DefaultSelector() as selector:
        selector.select(0)


ESCAPES_SHORT: list[tuple[Callable[[], Any], str]] = [
    (_thread, "a thread"),
    (_confluent, "confluent_kafka.Producer"),
    (_selector, "a real socket"),
    (lambda: time.sleep(1), "time.sleep"),
    (lambda: subprocess.run(["true"], check=False), "a child process"),
    (lambda: asyncio.get_running_loop().run_in_executor(None, print), "run_in_executor"),
    (lambda: asyncio.start_server(print, port=1, ssl=ssl.create_default_context()), "TLS"),
    (lambda: os._exit(0), r"os\._exit"),
    (lambda: signal.raise_signal(signal.SIGTERM), r"a signal \(raise_signal"),
    (lambda: AdminClient({"bootstrap.servers": "localhost:9"}), "confluent_kafka.AdminClient"),
    (lambda: socket.getaddrinfo("localhost", 1), "names of real hosts"),
    (lambda: asyncio.start_unix_server(print, "path"), "a Unix socket"),
    (lambda: asyncio.get_running_loop().connect_write_pipe(asyncio.Protocol, sys.stdout), "a pipe"),
    (lambda: asyncio.get_running_loop().set_task_factory(None), "a task factory"),
]
"""Uses of something that is not simulated, one of each kind. `make test` tries them."""
ESCAPES: list[tuple[Callable[[], Any], str]] = [
    (lambda: asyncio.to_thread(print), "run_in_executor"),
    (lambda: multiprocessing.Process(target=print).start(), "a child process"),
    (lambda: os.system("true"), "a child process"),
    (lambda: os.fork(), "a child process"),  # noqa: PLW0108  the name is looked up in the run
    (lambda: sleep(1), "time.sleep"),
    (lambda: _OwnProducer({"bootstrap.servers": "localhost:9"}), "confluent_kafka.Producer"),
    (lambda: SerializingProducer({"bootstrap.servers": "localhost:9"}), "confluent_kafka.Producer"),
    (_real_socket, "a real socket"),
    (_socket_of_a_server, "a real socket"),
    (_socket_of_datagrams, "a real socket"),
    (_upgrade_to_tls, "TLS"),
    (
        lambda: asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, sys.stdin),
        r"a pipe \(connect_read_pipe",
    ),
    (_reception, r"a real socket \(sock_recv"),
    (lambda: os.kill(os.getpid(), signal.SIGTERM), r"a signal \(kill"),
    (lambda: os.execv(sys.executable, [sys.executable]), "a child process"),
]
"""More uses of the same kinds. Only `make test-all` tries them."""


@pytest.mark.parametrize(
    ("use", "named"), [*ESCAPES_SHORT, *(pytest.param(*escape, marks=pytest.mark.full) for escape in ESCAPES)]
)
def test_what_leaves_the_simulation_ends_the_run_with_the_remedy(use: Callable[[], Any], named: str) -> None:
    async def app(sim: Sim) -> None:
        try:
            waiting = use()
            if asyncio.iscoroutine(waiting):
                await waiting
        except Escaped:
            await asyncio.sleep(1000)  # the application may hide the error

    with pytest.raises(Escaped, match=rf"The application uses {named}.* \(.*test_run.py, line \d+\), .*; use "):
        run(app, brokers=1, faults=())


class _OwnDatetime(datetime):
    """A subclass, which a module has defined before the run."""


CLOCKS: dict[str, Callable[[], float]] = {
    "time.time": lambda: time.time(),  # noqa: PLW0108  the name is looked up in the run
    "from time import time": lambda: clock(),  # noqa: PLW0108  the name is looked up in the run
    "time.time_ns": lambda: time.time_ns() / 1e9,
    "time.gmtime": lambda: calendar.timegm(time.gmtime()),
    "time.localtime": lambda: time.mktime(time.localtime()),
    "time.ctime": lambda: time.mktime(time.strptime(time.ctime())),
    "time.strftime": lambda: time.mktime(time.strptime(time.strftime("%Y %j %H:%M:%S"), "%Y %j %H:%M:%S")),
    "time.clock_gettime": lambda: time.clock_gettime(time.CLOCK_REALTIME),
    "datetime.now": lambda: datetime.now().timestamp(),  # noqa: DTZ005
    "datetime.now(UTC)": lambda: datetime.now(UTC).timestamp(),
    "datetime.utcnow": lambda: datetime.utcnow().replace(tzinfo=UTC).timestamp(),  # noqa: DTZ003
    "datetime.today": lambda: datetime.today().timestamp(),  # noqa: DTZ002
    "subclass of datetime": lambda: _OwnDatetime.now(UTC).timestamp(),
}


def test_all_clocks_show_virtual_time() -> None:
    async def app(sim: Sim) -> None:
        before = {name: read() for name, read in CLOCKS.items()}
        await asyncio.sleep(600)
        sim.record("passed", {name: read() - before[name] for name, read in CLOCKS.items()})
        sim.record("now", pickle.loads(pickle.dumps(datetime.now(UTC))))

    result = run(app, brokers=1, faults=())
    assert result.state is not None
    (passed,) = result.state.reported("passed")
    assert passed == {name: pytest.approx(600, abs=1.01) for name in CLOCKS}
    (now,) = result.state.reported("now")
    assert type(now) is datetime
    assert now < datetime.now(UTC), "the seams end with the run"
    assert datetime.now(UTC).timestamp() == pytest.approx(time.time(), abs=60)


def test_other_threads_have_the_real_time() -> None:
    seen: list[float] = []
    began, ended = threading.Event(), threading.Event()

    def read() -> None:
        began.wait()
        seen.extend((time.time(), datetime.now(UTC).timestamp()))
        ended.set()

    async def app(sim: Sim) -> None:
        began.set()
        ended.wait()

    thread = threading.Thread(target=read)
    thread.start()
    assert run(app, brokers=1, faults=()).passed
    thread.join()
    assert seen == [pytest.approx(time.time(), abs=60)] * 2


def test_failed_assertion_of_the_application_is_a_finding() -> None:
    async def app(sim: Sim) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(check(sim))

    async def check(sim: Sim) -> None:
        assert sim.seed == 8, "the seed is wrong"

    result = run(app, brokers=1, faults=())
    assert [text for text in result.findings if "application-1: AssertionError: the seed is wrong" in text]
    assert "test_run.py, line " in result.findings[0]


def test_slow_link_concerns_the_instance_that_the_fault_names() -> None:
    faults = Faults(kinds=[SLOW_LINK], at_least=60, at_most=60).generate(1, brokers=3, instances=3)
    assert {fault.other for fault in faults} == {1, 2, 3}
    assert "slow link between instance 2 and broker 1" in str(Fault(SLOW_LINK, at=1.0, other=2))


def test_ids_and_random_numbers_come_from_the_seed() -> None:
    async def app(sim: Sim) -> None:
        random.seed()
        numbers: tuple[object, ...] = (
            random.random(),
            Random().random(),
            random.SystemRandom().random(),
            secrets.token_hex(),
        )
        numbers += (os.getrandom(4), ssl.RAND_bytes(4))
        sim.record("id", (uuid.uuid4().hex, uuid.uuid1().hex, os.urandom(4), sim.random.random(), *numbers))

    first, again, other = (run(app, seed=seed, brokers=1, faults=()) for seed in (1, 1, 2))
    assert first.state is not None
    assert again.state is not None
    assert other.state is not None
    assert first.state.reported("id") == again.state.reported("id") != other.state.reported("id")
    assert first.digest == again.digest != other.digest


def test_own_checker_receives_the_final_state() -> None:
    def too_many(state: State) -> Iterator[str]:
        yield f"{len(state.committed['in'])} records, finished {state.finished}"

    async def app(sim: Sim) -> None:
        sim.record("acknowledged", b"lost")
        sim.record("seen", b"aborted")

    topics = {"in": Topic(records=[(None, b"1"), (None, b"2")])}
    chosen = [too_many, checkers.no_lost_acknowledged_record("in"), checkers.no_aborted_record_seen("in")]
    result = run(app, brokers=1, faults=(), topics=topics, checkers=chosen)
    assert result.findings == [
        "2 records, finished True",
        "b'lost' was acknowledged and is not in in",
        "b'aborted' was seen in in, but its transaction was aborted",
    ]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("crash", at=1.0), "fault kind 'crash' does not exist; use one of kill broker"),
        (Fault(KILL, at=1.0, target=2), r"kill broker 2: number 2 does not exist; use 1 to 1"),
        (Fault(CRASH, at=1.0, target=0), r"crash application 0: number 0 does not exist; use 1 to 1"),
        (Fault(PARTITION, at=1.0, other=2), "partition broker 1 from broker 2: number 2 does not exist"),
        (Fault(ISOLATE, at=1.0, other=2), "partition instance 2 from broker 1: number 2 does not exist"),
        (Fault(LOSE_RESPONSE, at=1.0, api="Fetch"), "the response of Fetch to instance 1: the API is not supported"),
    ],
)
def test_fault_that_cannot_be_injected_is_refused(fault: Fault, message: str) -> None:
    async def app(sim: Sim) -> None:
        raise AssertionError(sim)

    with pytest.raises(ValueError, match=message):
        run(app, brokers=1, faults=[fault])


def test_generated_faults_can_be_injected() -> None:
    for fault in Faults(at_least=200, at_most=200).generate(1, brokers=3, instances=2):
        fault.check(brokers=3, instances=2)


def test_generated_faults_are_data_of_the_seed() -> None:
    faults = [Faults(at_least=60, at_most=60).generate(seed, brokers=3, instances=2) for seed in (1, 1, 2)]
    assert faults[0] == faults[1] != faults[2]
    assert {fault.kind for fault in faults[0] + faults[2]} == set(KINDS)
    assert {fault.target for fault in faults[0] if fault.kind == CRASH} == {1, 2}
    assert all(str(fault) for fault in faults[0])
    assert all(fault.at <= 20.0 for fault in faults[0])
    assert KILL in Faults(kinds=[KILL]).generate(1, brokers=1, instances=1)[0].kind


def test_failed_assertion_of_a_checker_is_a_violation_and_its_result_can_be_none() -> None:
    def no_report(state: State) -> Any:
        assert state.reports == [], "there are reports"

    async def app(sim: Sim) -> None:
        sim.record("report", 1)

    (finding,) = run(app, brokers=1, faults=(), checkers=[no_report]).findings
    assert finding.startswith("AssertionError: there are reports")
    assert "test_run.py, line " in finding

    async def silent(_: Sim) -> None:
        pass

    assert run(silent, brokers=1, faults=(), checkers=[no_report]).passed


@pytest.mark.parametrize("result", ["wrong", False, [1]])
def test_checker_that_returns_no_texts_is_named(result: Any) -> None:
    def check(_: State) -> Any:
        return result

    async def app(_: Sim) -> None:
        pass

    with pytest.raises(TypeError, match=r"checker .*check.* returned .*; yield a text for each violation"):
        run(app, brokers=1, faults=(), checkers=[check])
