"""Processes that run a module of Odradek: where they find modules, and which environment they receive."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING, Any

import pytest

from odradek import run_module

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S = 30
PROBE = """
import json, os, sys, typing
import structlog
print(json.dumps({
    "arguments": sys.argv[1:],
    "path": sys.path,
    "typing": typing.__file__,
    "probe": __file__,
    "odradek": sys.modules["odradek"].__file__,
    "environment": {name: value for name, value in os.environ.items() if name.startswith("PYTHON")},
}))
"""
CALLER = """
import subprocess, sys
from odradek import run_module
command = run_module.command("odradek.probe", "--config", "a file")
sys.exit(subprocess.run(command, env=run_module.environment(), check=False).returncode)
"""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return a directory as `pip install --target` makes it, with a module named as one of the standard library."""
    package = tmp_path / "target" / "odradek"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "probe.py").write_text(PROBE)
    shutil.copy(run_module.__file__, package)
    (tmp_path / "target" / "typing.py").write_text("raise ImportError('this is not the standard library')")
    return tmp_path / "target"


def report(working_directory: Path, **environment: str) -> Any:
    completed = subprocess.run(
        [sys.executable, "-P", "-c", CALLER],
        cwd=working_directory,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a user's directory with modules that would break a broker."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("structlog", "uvloop", "broker", "json"):
        (folder / f"{name}.py").write_text("raise ImportError('this module belongs to the project of a user')")
    return folder


def caller_path(target: Path, project: Path) -> str:
    """Return a PYTHONPATH with which the caller itself does not import the modules of the project."""
    return os.pathsep.join([sysconfig.get_path("stdlib"), str(target), sysconfig.get_path("purelib"), str(project)])


def test_the_process_imports_odradek_from_the_directory_of_its_caller(target: Path, project: Path) -> None:
    probe = report(project, PYTHONPATH=caller_path(target, project))
    assert probe["odradek"] == str(target / "odradek" / "__init__.py")
    assert probe["probe"] == str(target / "odradek" / "probe.py")
    assert probe["arguments"] == ["--config", "a file"]


def test_the_process_ignores_pythonpath_and_the_working_directory(target: Path, project: Path) -> None:
    probe = report(project, PYTHONPATH=caller_path(target, project))
    assert str(project) not in probe["path"]
    assert "" not in probe["path"]
    assert "PYTHONPATH" not in probe["environment"]


def test_the_directory_of_odradek_comes_after_the_standard_library_and_before_site_packages(
    target: Path, project: Path
) -> None:
    probe = report(project, PYTHONPATH=caller_path(target, project))
    path = probe["path"]
    assert (
        path.index(sysconfig.get_path("stdlib")) < path.index(str(target)) < path.index(sysconfig.get_path("purelib"))
    )
    assert probe["typing"] == f"{sysconfig.get_path('stdlib')}/typing.py"


def test_the_process_receives_all_other_variables(target: Path, project: Path) -> None:
    path = caller_path(target, project)
    probe = report(project, PYTHONPATH=path, PYTHONHASHSEED="7", PYTHONDONTWRITEBYTECODE="1")
    assert probe["environment"].items() >= {"PYTHONHASHSEED": "7", "PYTHONDONTWRITEBYTECODE": "1"}.items()


def test_pythonhome_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert "PYTHONHOME" not in run_module.environment()
    assert run_module.environment()["PYTHONHASHSEED"] == "7"


def test_a_package_runs_by_its_main_module() -> None:
    completed = subprocess.run(
        run_module.command("odradek.broker", "--help"),
        env=run_module.environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout.startswith("usage: python -m odradek.broker")
