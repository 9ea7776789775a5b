"""Rotation of the log file of a process, to which its standard error goes."""

import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from odradek.broker_interface import ROTATED_SUFFIX
from odradek.private_files import open_private

LOG_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum bytes of a log file before it is rotated. With the rotated file, the logs of a broker take 32 MiB at most."""


class RotatingLog:
    """A stream of complete lines to standard error, which is a log file.

    When the file exceeds its maximum size, it is renamed, and replaces the file that was rotated before. Standard error
    then is a new file, so that the interpreter writes tracebacks there, too.
    """

    def __init__(self, path: Path, stream: IO[str], *, bytes_max: int = LOG_BYTES_MAX) -> None:
        """`stream` writes to the file at `path`."""
        self._path = path
        self._stream = stream
        self._bytes_max = bytes_max
        self._size = path.stat().st_size if path.exists() else 0

    def write(self, text: str) -> int:
        """Write text. After the end of a line, rotate the file if it is too large."""
        written = self._stream.write(text)
        self._size += len(text.encode(errors="replace"))
        if self._size > self._bytes_max and text.endswith("\n"):
            self._stream.flush()
            self._rotate()
        return written

    def flush(self) -> None:
        self._stream.flush()

    def _rotate(self) -> None:
        """Rename the file, and let the descriptor of the stream refer to a new one.

        After a failure, the old file grows until the next attempt.
        """
        self._size = 0
        try:
            with suppress(FileNotFoundError):  # a previous attempt renamed the file, and could not open a new one
                self._path.replace(f"{self._path}{ROTATED_SUFFIX}")
            new = open_private(self._path, "a")
        except OSError:
            return  # the disk is full, no descriptor is free, or the directory was removed
        with new:
            os.dup2(new.fileno(), self._stream.fileno())
