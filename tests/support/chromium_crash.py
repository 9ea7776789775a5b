"""Plugin of pytest: a test of tests/browser runs again, once, if Chromium crashed during it.

The summary counts and names such tests. A page that always makes Chromium crash still fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    import pytest

FIXTURE: Final = "chrome"
"""Only tests with this fixture run again. Before each of them, `Browser.use` starts Chromium again after a crash."""
RERUN: Final = "rerun"
"""Outcome of a report that a second run replaces."""
CRASHED: Final = ("invalid session id", "tab crashed")
"""Messages of Selenium after a process of Chromium has ended."""


def is_crash(text: str) -> bool:
    """Return whether the text of an error says that a process of Chromium has ended."""
    return any(message in text for message in CRASHED)


def pytest_runtest_protocol(item: pytest.Function, nextitem: pytest.Item | None) -> bool | None:
    if FIXTURE not in item.fixturenames:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item, nextitem):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _reports(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    first = runtestprotocol(item, log=False, nextitem=nextitem)
    failed = next((each for each in first if each.failed), None)
    if failed is None or not is_crash(failed.longreprtext):
        return first
    failed.outcome = RERUN  # type: ignore[assignment]  # pytest's type has only the outcomes of pytest itself
    return [failed, *runtestprotocol(item, log=False, nextitem=nextitem)]


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    outcome: str = report.outcome
    return (RERUN, "R", "RERUN") if outcome == RERUN else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for report in terminalreporter.stats.get(RERUN, ()):
        terminalreporter.write_line(f"Chromium crashed, and the test ran again: {report.nodeid}")
