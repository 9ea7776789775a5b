"""A test runs a second time if Chromium crashed, and at no other error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import chromium_crash
from tests.support.plugin_runs import Project

TESTS = """
import pytest

RUNS = []


@pytest.fixture
def chrome():
    yield RUNS
    if {crashes_after}:
        raise OSError("Message: tab crashed")


def test_of_a_page(chrome):
    chrome.append(None)
    if len(chrome) <= {failures}:
        raise OSError({message!r})
"""
CRASH = "Message: invalid session id: session deleted as the browser has closed the connection"


@pytest.mark.parametrize(
    ("failures", "message", "outcome"),
    [
        (1, CRASH, "1 passed, 1 rerun"),
        (1, "Message: tab crashed", "1 passed, 1 rerun"),
        (2, CRASH, "1 failed, 1 rerun"),
        (1, "Message: no such element", "1 failed in"),
    ],
)
def test_only_a_crash_runs_a_test_again(tmp_path: Path, failures: int, message: str, outcome: str) -> None:
    project = Project(tmp_path)
    project.write("test_page.py", TESTS.format(failures=failures, message=message, crashes_after=False))
    project.write("chromium_crash.py", Path(chromium_crash.__file__).read_text())

    run = project.run("-p", "chromium_crash")

    assert outcome in run.output
    named = "Chromium crashed, and the test ran again: test_page.py::test_of_a_page" in run.output
    assert named == ("rerun" in outcome)


def test_failure_before_a_crash_is_final(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("test_page.py", TESTS.format(failures=1, message="not the expected text", crashes_after=True))
    project.write("chromium_crash.py", Path(chromium_crash.__file__).read_text())

    run = project.run("-p", "chromium_crash")

    assert "1 failed, 1 error in" in run.output
