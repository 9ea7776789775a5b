"""Options, hooks and fixtures of all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from odradek.storage.disk.os_disk import OsFile, OsLock
from tests.interop import client_table
from tests.machines import transition_visits

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["tests.support.selection", "tests.support.invariants", "tests.support.chromium_crash"]
DESCRIPTORS_MAX = 900
"""Maximum open file descriptors of a test process.

select() fails with descriptors of 1,024 and more. py4j uses select() in its server for calls from Spark; without it, a
query waits for its batch function without a time limit.
"""
DESCRIPTORS = Path("/proc/self/fd")
WITHOUT_TIMES = "without times"
"""Profile of Hypothesis: a slow machine fails no example."""
REPEATABLE = "repeatable"
"""Profile of Hypothesis for `make test`: each run of one commit tries the same examples. `--full` tries new ones."""
settings.register_profile(WITHOUT_TIMES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(REPEATABLE, settings.get_profile(WITHOUT_TIMES), derandomize=True, database=None)
settings.load_profile(WITHOUT_TIMES)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=("odradek", "kafka"),
        default="odradek",
        help="system under test of the client tests: Odradek, or Apache Kafka to validate the tests",
    )
    parser.addoption(
        "--write-client-table", action="store_true", help="write docs/clients.md from the results of tests/interop"
    )
    parser.addoption(
        "--write-screenshots", action="store_true", help="write docs/assets/console from the results of tests/browser"
    )
    parser.addoption(
        "--update-transcripts",
        action="store_true",
        help="replace the output in the golden transcripts of tests/scenarios by the actual output",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Restore SIGINT for child processes. A process in the background of a shell inherits an ignored SIGINT."""
    if not config.getoption("--full"):
        settings.load_profile(REPEATABLE)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude the collected tests from garbage collections.

    Thousands of tests and their modules stay until the end. Each full collection would visit their objects: 0.7 s in
    each of the two collections of a simulated run.
    """
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write or check the table of clients from the results of all xdist workers."""
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
    """Print each failure immediately. A long run may be terminated before its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        sys.stdout.write(f"\nfailed: {report.nodeid} ({report.when}, {report.duration:.0f} s)\n")


@pytest.fixture(autouse=True)
def _files_of_the_test_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close all files and locks of a test. A test that simulates a kill leaves its log files open."""
    opened: list[OsFile | OsLock] = []

    def record_instances(cls: type[OsFile | OsLock]) -> None:
        initialize = cls.__init__

        def initialize_and_record(self: OsFile | OsLock, *arguments: Any) -> None:
            initialize(self, *arguments)  # type: ignore[arg-type]
            opened.append(self)

        monkeypatch.setattr(cls, "__init__", initialize_and_record)

    record_instances(OsFile)
    record_instances(OsLock)
    yield
    for resource in opened:
        if isinstance(resource, OsFile):
            resource.close()
        else:
            resource.release()
    descriptors = sum(1 for _ in DESCRIPTORS.iterdir())
    assert descriptors < DESCRIPTORS_MAX, f"{descriptors} descriptors are open: this test or an earlier one leaks them"


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    for client, feature, passed in getattr(node, "workeroutput", {}).get("client_table", ()):
        client_table.record(client, feature, passed=passed)
    for row in getattr(node, "workeroutput", {}).get("visited", ()):
        transition_visits.record(tuple(row))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print how often the random walks of the machines visited each cell of the transition tables."""
    lines = transition_visits.lines(transition_visits.noted(), whole=config.getoption("verbose") > 0)
    if lines:
        terminalreporter.section("cells of the tables, visited by walks")
    for line in lines:
        terminalreporter.write_line(line)
