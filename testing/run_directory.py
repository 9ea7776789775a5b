"""Directory of one test process: clusters, and the logs that a failed run leaves.

The directories of one user are in one base directory. Each has a locked file while its process runs, so that the
next run finds and removes the directories of processes that have ended. Brokers end with the process that started them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from odradek.private_files import make_private_directory, open_private

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK_NAME = "run.lock"
PREFIX = "run-"


def base_directory() -> Path:
    """Return the directory of all test runs of this user."""
    return Path(tempfile.gettempdir()) / f"odradek-tests-{os.getuid()}"


class RunDirectory:
    """Directory of one test process. `remove_leftovers` runs at its creation."""

    def __init__(self, base: Path | None = None) -> None:
        base = base or base_directory()
        make_private_directory(base)
        if base.stat().st_uid != os.getuid():
            raise PermissionError(f"{base} belongs to another user; set TMPDIR to a directory of your own")
        # The lock of the base directory: another process does not see the new directory before its lock is held.
        with open_private(base / "base.lock", "w") as base_lock:
            fcntl.flock(base_lock, fcntl.LOCK_EX)
            remove_leftovers(base)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
            self._lock = open_private(self.path / LOCK_NAME, "w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._clusters = 0

    def new_cluster(self) -> Path:
        """Return the path of a directory for one more cluster. It does not exist yet."""
        self._clusters += 1
        return self.path / f"cluster-{self._clusters}"

    def close(self, *, keep_logs: bool) -> None:
        """Remove the directory. With `keep_logs`, leave the logs of brokers until the next run begins."""
        if keep_logs:
            for data in self.path.glob("cluster-*/broker-*/"):
                shutil.rmtree(data, ignore_errors=True)
        else:
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def remove_leftovers(base: Path) -> None:
    """Remove the directories of processes that have ended."""
    for path in base.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), _lock_of_ended_process(path):
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _lock_of_ended_process(path: Path) -> Iterator[IO[str]]:
    """Hold the lock of a directory. Raise BlockingIOError if its process runs."""
    with open_private(path / LOCK_NAME, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lock
