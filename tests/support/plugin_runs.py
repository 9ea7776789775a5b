"""Run pytest with the plugin of `odradek.testing` in a project of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S = 120
# The entry point of the installed package has the name `odradek`. These options also work where it is not installed.
PLUGIN = ("-p", "no:odradek", "-p", "odradek.testing.plugin")
# The plugins of Hypothesis and anyio take four fifths of the start of pytest, and no project here uses them.
UNUSED_OFF = ("-p", "no:hypothesispytest", "-p", "no:anyio")
OTHERS_OFF = ("-p", "no:randomly", "-p", "no:cacheprovider", *UNUSED_OFF, "--strict-markers")
CONFIGURATION = """[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""
COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


@dataclass(frozen=True)
class Run:
    """Result of a run of pytest: exit code, output, and the number of tests by outcome."""

    code: int
    output: str
    counts: dict[str, int]


class Project:
    """Folder of a project outside of this repository, with its tests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path / "tmp"
        self.temporary.mkdir()
        (path / "pytest.ini").write_text(CONFIGURATION)

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        (self.path / name).write_text(text)

    def run(self, *arguments: str) -> Run:
        """Run pytest on the tests of the project."""
        completed = subprocess.run(
            self._command(*arguments),
            cwd=self.path,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        output = completed.stdout + completed.stderr
        last = completed.stdout.strip().splitlines()[-1] if completed.stdout.strip() else ""
        counts = {kind.removesuffix("s") if kind == "errors" else kind: int(n) for n, kind in COUNT.findall(last)}
        return Run(completed.returncode, output, counts)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start pytest on the tests of the project, without its output."""
        nowhere = subprocess.DEVNULL
        return subprocess.Popen(
            self._command(*arguments), cwd=self.path, env=self._environment(), stdout=nowhere, stderr=nowhere
        )

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "pytest", *PLUGIN, *OTHERS_OFF, *arguments]

    def _environment(self) -> dict[str, str]:
        return os.environ | {"TMPDIR": str(self.temporary), "PYTHONPATH": ""}

    def left(self) -> list[Path]:
        """Return the directories of test runs that exist."""
        return sorted(self.temporary.glob("odradek-tests-*/run-*"))
