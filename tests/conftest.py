"""Options that all tests share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop import table


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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Simulation campaigns come first: one of them takes minutes, and at the end the other process would have nothing to do meanwhile."""
    items.sort(key=lambda item: item.get_closest_marker("sim") is None)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The table of clients is made of all results: those of processes that share a run are brought together first."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["client_table"] = table.results()
        return
    outcome = table.settle(write=bool(config.getoption("--write-client-table")))
    if outcome:
        config.get_terminal_writer().line(f"\n{outcome}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    for client, feature, passed in getattr(node, "workeroutput", {}).get("client_table", ()):
        table.record(client, feature, passed=passed)
