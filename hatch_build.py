"""The build hook of hatchling: writes the git commit into wheels and sdists, as odradek/COMMIT."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

RECORD = "odradek/COMMIT"


class CommitHook(BuildHookInterface[Any]):
    """Add odradek/COMMIT to a wheel or sdist if the commit is known."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Include the file of an unpacked sdist, or one that is made from git. An editable install needs none."""
        if version == "editable":
            return
        tree = Path(self.root)
        record = tree / RECORD
        if not record.exists():
            source_commit = runpy.run_path(str(tree / "odradek" / "source_commit.py"))
            commit = source_commit["git_commit"](tree)
            if commit == source_commit["UNKNOWN"]:
                return
            self._directory = tempfile.TemporaryDirectory(prefix="odradek-build-")  # removed with this object
            record = Path(self._directory.name) / record.name
            record.write_text(f"{commit}\n", encoding="ascii")
        build_data["force_include"][str(record)] = RECORD
