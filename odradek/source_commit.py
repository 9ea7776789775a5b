"""Find the git commit that the running Odradek was built from.

A wheel and an sdist carry the commit in the file COMMIT beside this module: hatch_build.py, the build hook, writes it with
`git_commit`. A source tree has no such file: git is called there, at the first use and never at import.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

RECORD = Path(__file__).with_name("COMMIT")
UNKNOWN = "unknown"
HASH_DIGITS = 12
GIT_TIMEOUT_S = 5.0
"""Maximum time of one git call. A start of a broker must not depend on a slow file system behind git."""


def source_commit() -> str:
    """Return the commit of this installation, with "-dirty" after a build from changed files, or "unknown"."""
    try:
        return RECORD.read_text(encoding="ascii").strip()
    except OSError:
        return git_commit(Path(__file__).resolve().parent.parent)


def git_commit(tree: Path) -> str:
    """Return the commit that is checked out in `tree`, or "unknown" if `tree` is not the root of a git work tree.

    The root is required: a virtual environment inside the repository of another project does not have that project's commit.
    """
    if not (tree / ".git").exists():
        return UNKNOWN
    command = ["git", "-C", str(tree), "--no-optional-locks", "describe", "--always", "--dirty", "--exclude=*"]
    # A git hook sets GIT_DIR and more for the repository of the hook.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [*command, f"--abbrev={HASH_DIGITS}"],
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return done.stdout.strip() if done.returncode == 0 else UNKNOWN
