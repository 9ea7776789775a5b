"""The examples of docs/testing.md are tests, and have complete types."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.plugin_runs import Project

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.full]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEST = re.compile(r"^(?:async )?def test_", re.MULTILINE)


def examples() -> Iterator[tuple[str, str]]:
    """Yield the name of a file, and an example of the page."""
    for number, block in enumerate(BLOCK.findall(PAGE.read_text(encoding="utf-8"))):
        yield f"test_{number}.py", block


def test_examples_pass(tmp_path: Path) -> None:
    project = Project(tmp_path)
    tests = 0
    for name, block in examples():
        project.write(name, block)
        tests += len(TEST.findall(block))
    run = project.run()
    assert tests >= 10
    assert run.counts == {"passed": tests}, run.output
    assert project.left() == []


def test_examples_have_complete_types(tmp_path: Path) -> None:
    for name, block in examples():
        (tmp_path / name).write_text(block)
    options = ("--strict", "--ignore-missing-imports", "--follow-imports=silent", "--python-version", "3.11")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", str(tmp_path / "cache"), str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
