"""A test runs a second time if Chromium crashed, and at no other error."""

from __future__ import annotations

import re
from pathlib import Path

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


CASES = {
    # name: failures, message, crash in the teardown, outcomes in the summary
    "test_session": (1, CRASH, False, {"RERUN", "PASSED"}),
    "test_tab": (1, "Message: tab crashed", False, {"RERUN", "PASSED"}),
    "test_always": (2, CRASH, False, {"RERUN", "FAILED"}),
    "test_no_crash": (1, "Message: no such element", False, {"FAILED"}),
    "test_failure_first": (1, "not the expected text", True, {"FAILED", "ERROR"}),
}


def test_only_a_crash_runs_a_test_again_and_a_failure_before_it_is_final(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("chromium_crash.py", Path(chromium_crash.__file__).read_text())
    for name, (failures, message, crashes_after, _) in CASES.items():
        text = TESTS.format(failures=failures, message=message, crashes_after=crashes_after)
        project.write(f"{name}.py", text)

    run = project.run("-v", "-p", "chromium_crash")

    for name, (_, _, _, outcomes) in CASES.items():
        assert set(re.findall(rf"^{name}\.py::test_of_a_page (\w+)", run.output, re.MULTILINE)) == outcomes, name
        named = f"Chromium crashed, and the test ran again: {name}.py::test_of_a_page" in run.output
        assert named == ("RERUN" in outcomes), name
    assert "3 failed, 2 passed, 1 error, 3 rerun in" in run.output
