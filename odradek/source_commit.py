"""Find the git commit of the running Odradek.

A wheel and an sdist contain the commit in the file COMMIT beside this module. The build hook hatch_build.py writes it
with `git_commit`. A source tree has no such file. There, `source_commit` calls git; an import of this module does not.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

RECORD = Path(__file__).with_name("COMMIT")
UNKNOWN = "unknown"
HASH_DIGITS = 12
"""Minimum hexadecimal digits of a commit."""
GIT_TIMEOUT_S = 5.0
"""Maximum seconds of a git call, which may wait for a slow file system. A start of a broker must not wait for it."""


def source_commit() -> str:
    """Return the commit of this installation, with "-dirty" after a build from changed files, or "unknown"."""
    try:
        return RECORD.read_text(encoding="ascii").strip()
    except OSError:
        return git_commit(Path(__file__).resolve().parent.parent)


def git_commit(tree: Path) -> str:
    """Return the commit that is checked out in `tree`, or "unknown" if `tree` is not the root of a git work tree.

    A directory below the root does not count: a virtual environment inside another project's repository would have the
    commit of that project.
    """
    if not (tree / ".git").exists():
        return UNKNOWN
    command = ["git", "-C", str(tree), "--no-optional-locks", "describe", "--always", "--dirty", "--exclude=*"]
    # In a git hook, variables such as GIT_DIR select the repository of the hook instead of `tree`.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        completed = subprocess.run(
            [*command, f"--abbrev={HASH_DIGITS}"],
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return completed.stdout.strip() if completed.returncode == 0 else UNKNOWN
