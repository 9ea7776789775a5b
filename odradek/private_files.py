"""Create files and directories that only the user of this process can access, and restrict existing ones."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_MODE: Final = 0o600
"""Mode of data files, logs and configuration: records and secrets of clients are in them."""
DIRECTORY_MODE: Final = 0o700
OTHERS_BITS: Final = 0o077
"""Permissions of the group and of all other users."""


def make_private_directory(path: str | Path) -> None:
    """Create the directory with mode 0700, and its absent parents with the default mode. It may exist."""
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(os.fspath(path).rstrip("/")), exist_ok=True)
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


@contextmanager
def errors_naming(path: Path) -> Iterator[None]:
    """Add a path to an error of the operating system that names no file, such as that of a write to a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def open_private(path: Path, mode: str) -> IO[str]:
    """Open a text file. A new file gets mode 0600."""
    return open(path, mode, encoding="utf-8", opener=_create_private)


def write_private(path: Path, text: str) -> None:
    """Write a text file. A new file gets mode 0600. An error names the file."""
    with errors_naming(path), open_private(path, "w") as file:
        file.write(text)


def replace_private(path: Path, text: str) -> None:
    """Write a text file with mode 0600 in one step, so that no process reads a part of it."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    write_private(temporary, text)
    temporary.replace(path)


def _create_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def restrict(path: str) -> int:
    """Remove the permissions of other users from a directory and its content. Return the number of changed entries.

    The content of a directory is restricted before the directory. So a restricted directory below `path` has restricted
    content, and is not searched. `path` itself is always searched, because an operator can have restricted it alone.
    Entries of other users and symbolic links stay unchanged, and directories with the sticky bit, which users share.
    """
    return _restrict(Path(path).resolve(), search=True)


def _restrict(path: Path, *, search: bool = False) -> int:
    try:
        status = path.lstat()
        is_open = bool(status.st_mode & OTHERS_BITS)
        if stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX or not (is_open or search):
            return 0
        changed = sum(_restrict(entry) for entry in path.iterdir()) if stat.S_ISDIR(status.st_mode) else 0
        if is_open and status.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(status.st_mode) & ~OTHERS_BITS)
            changed += 1
    except (FileNotFoundError, PermissionError):
        return 0  # removed meanwhile, or a directory of another user
    return changed
