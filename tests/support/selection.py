"""Select and order the tests of a run, and list what the run leaves out. A pytest plugin, loaded by tests/conftest.py.

Two sizes of runs exist: `make test` runs everything except tests marked `full`, `make test-all` (`pytest --full`) runs
those, too, and tries more examples and seeds in randomized tests (tests/support/effort.py). A test marked `full` is
part of a matrix or of a campaign whose short form runs in `make test`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.effort import raise_effort

if TYPE_CHECKING:
    from collections.abc import Sequence

TESTS = Path(__file__).resolve().parents[1]
FOLDER_GROUPS = (("interop",), ("chaos", "pipeline"), ("sim", "machines", "wire", "browser"))
"""Folders of long tests.

The tests of one group start in one worker, because they share processes: Kafka's tools and brokers, Spark.
"""
LEFT_OUT_OF_EVERY_RUN = (
    "make sim SEEDS=a..b",
    "make sim-app",
    "make chaos",
    "make eos",
    "make fuzz",
    "make bench",
    "make floods",
)
_left_out: Counter[str] = Counter()
"""Tests that the run leaves out, by file and function."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="run the tests marked `full`, too: full matrices and campaigns"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--full"):
        raise_effort()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    check_names(items)
    if not config.getoption("--full"):
        leave_out(config, items)
    items[:] = scheduled(items)


def check_names(items: Sequence[pytest.Item]) -> None:
    """Raise pytest.UsageError if the name of a test contains an address in memory: workers would have other names."""
    for item in items:
        if " at 0x" in item.name:
            raise pytest.UsageError(f"{item.nodeid}: give the parameters names by ids=")


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests marked `full`."""
    full = [item for item in items if item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=full)
    items[:] = [item for item in items if not item.get_closest_marker("full")]
    _left_out.update(item.nodeid.partition("[")[0] for item in full)


def scheduled(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Order the tests for workers that steal work.

    With `--dist worksteal` each of three workers receives one third of the list, and a worker without work steals from
    the end of another third. So each third begins with one group of long tests and ends with short tests.
    """
    groups = [[item for item in items if folder(item) in group] for group in FOLDER_GROUPS]
    long = {folder for group in FOLDER_GROUPS for folder in group}
    short = [item for item in items if folder(item) not in long]
    ordered: list[pytest.Item] = []
    for number, group in enumerate(groups, 1):
        end = len(items) * number // len(groups)
        ordered += group
        while short and (len(ordered) < end or number == len(groups)):
            ordered.append(short.pop())
    return ordered


def folder(item: pytest.Item) -> str:
    """Return the folder of a test's file below tests/, such as `interop`."""
    return item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(_left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a worker left out. Each worker collects, and leaves out, the same tests."""
    global _left_out  # noqa: PLW0603  one count per process
    _left_out |= Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not _left_out and not config.getoption("--full"):
        return
    terminalreporter.section("left out")
    for name, count in sorted(_left_out.items()):
        terminalreporter.write_line(f"{name}: {count} (make test-all)")
    terminalreporter.write_line(f"in no run of tests: {', '.join(LEFT_OUT_OF_EVERY_RUN)}")
    for report in terminalreporter.stats.get("skipped", ()):
        terminalreporter.write_line(f"{report.nodeid}: {report.longrepr[2]}")
