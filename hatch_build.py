"""Build hook of hatchling: add the git commit to wheels and sdists, as the file odradek/COMMIT."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMMIT_FILE = "odradek/COMMIT"


class CommitHook(BuildHookInterface[Any]):
    """Add odradek/COMMIT to a wheel or sdist if the commit is known."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Include the file of an unpacked sdist, or one with the commit from git. Editable installs need none."""
        if version == "editable":
            return
        tree = Path(self.root)
        path = tree / COMMIT_FILE
        if not path.exists():
            source_commit = runpy.run_path(str(tree / "odradek" / "source_commit.py"))
            commit = source_commit["git_commit"](tree)
            if commit == source_commit["UNKNOWN"]:
                return
            self._directory = tempfile.TemporaryDirectory(prefix="odradek-build-")  # removed with this object
            path = Path(self._directory.name) / path.name
            path.write_text(f"{commit}\n", encoding="ascii")
        build_data["force_include"][str(path)] = COMMIT_FILE
