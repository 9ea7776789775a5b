"""The gallery of known bugs: the plugin finds each bug, and its correction passes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.plugin_runs import Project

pytestmark = pytest.mark.interop

GALLERY = Path(__file__).resolve().parents[1] / "gallery"
BUGS = sorted(path.stem for path in GALLERY.glob("*.py") if path.stem != "__init__")
SHORT = ("retry_without_idempotence", "zombie_after_pause")
XFAIL = re.compile(r"(\d+) xfailed")


def check(path: Path, bugs: list[str]) -> None:
    """Run the tests of some bugs in one project, with one cluster."""
    project = Project(path)
    for name in bugs:
        shutil.copy(GALLERY / f"{name}.py", path / f"test_{name}.py")
    run = project.run()
    failed = XFAIL.search(run.output)
    assert run.counts.get("passed") == len(bugs), run.output
    assert failed is not None, run.output
    assert int(failed[1]) == len(bugs), run.output
    assert run.code == 0, run.output


def test_two_bugs_of_the_gallery(tmp_path: Path) -> None:
    check(tmp_path, list(SHORT))


@pytest.mark.full
def test_all_bugs_of_the_gallery(tmp_path: Path) -> None:
    assert len(BUGS) == 10
    check(tmp_path, BUGS)
