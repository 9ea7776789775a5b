"""Options that all tests share."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.storage.disk.os_disk import OsFile, OsLock
from tests.interop import client_table
from tests.machines import transition_visits

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["tests.support.selection", "tests.support.invariants"]
DESCRIPTORS_MAX = 900
"""Of one process of tests. With numbers of 1,024 and more select() fails, and with it py4j's server for calls from Spark:
a query then waits for its batch function for ever."""
DESCRIPTORS = Path("/proc/self/fd")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=("odradek", "kafka"),
        default="odradek",
        help="what client tests talk to: Odradek, or Apache Kafka as the referee of the tests themselves",
    )
    parser.addoption(
        "--write-client-table", action="store_true", help="write docs/clients.md from the results of tests/interop"
    )
    parser.addoption(
        "--update-transcripts",
        action="store_true",
        help="replace the output in the golden transcripts of tests/scenarios by the actual output",
    )


def pytest_configure() -> None:
    """Ctrl-C works in what tests start, also where they run in the background of a shell, whose programs ignore it by inheritance."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The table of clients is made of all results: those of processes that share a run are brought together first."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["client_table"] = client_table.results()
        config.workeroutput["visited"] = transition_visits.noted()
        return
    outcome = client_table.settle(write=bool(config.getoption("--write-client-table")))
    if outcome:
        config.get_terminal_writer().line(f"\n{outcome}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure is named at once, not at the end alone: a long run may be ended from outside before that."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        sys.stdout.write(f"\nfailed: {report.nodeid} ({report.when}, {report.duration:.0f} s)\n")


@pytest.fixture(autouse=True)
def _files_end_with_their_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logs of a test that ends in the middle of things, as after a kill, hold descriptors; a process has a thousand such tests."""
    kept: list[OsFile | OsLock] = []

    def keeping(made: type[OsFile | OsLock]) -> None:
        begin = made.__init__

        def begin_and_keep(self: OsFile | OsLock, *arguments: Any) -> None:
            begin(self, *arguments)  # type: ignore[arg-type]
            kept.append(self)

        monkeypatch.setattr(made, "__init__", begin_and_keep)

    keeping(OsFile)
    keeping(OsLock)
    yield
    for one in kept:
        if isinstance(one, OsFile):
            one.close()
        else:
            one.release()
    held = sum(1 for _ in DESCRIPTORS.iterdir())
    assert held < DESCRIPTORS_MAX, f"{held} descriptors are open: this test, or others before it, do not close theirs"


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    for client, feature, passed in getattr(node, "workeroutput", {}).get("client_table", ()):
        client_table.record(client, feature, passed=passed)
    for row in getattr(node, "workeroutput", {}).get("visited", ()):
        transition_visits.record(tuple(row))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """How often the walks of the machines have visited the cells of the tables."""
    lines = transition_visits.lines(transition_visits.noted(), whole=config.getoption("verbose") > 0)
    if lines:
        terminalreporter.section("cells of the tables, visited by walks")
    for line in lines:
        terminalreporter.write_line(line)
