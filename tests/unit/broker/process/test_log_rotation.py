"""Rotation of the log of a process."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from odradek.broker.process import log_rotation
from odradek.broker.process.log_rotation import RotatingLog

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

BYTES_MAX = 100


def test_log_is_bounded_and_complete_lines_continue_in_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "broker-1.log"
    path.touch(0o600)
    with path.open("a") as stream:
        log = RotatingLog(path, stream, bytes_max=BYTES_MAX)
        for number in range(50):
            log.write(f"line {number:03}")
            log.write("\n")
            log.flush()
            os.write(stream.fileno(), b"trace\n")  # written by the interpreter, not by this stream
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["broker-1.log", "broker-1.log.1"]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]
    current, rotated = (file.read_text().splitlines() for file in files)
    lines = [line for line in (*rotated, *current) if line != "trace"]
    assert lines == [f"line {number:03}" for number in range(50)][-len(lines) :]
    assert sum(len(line) + 1 for line in lines) <= 2 * (BYTES_MAX + len("line 000\n"))


def test_log_is_kept_if_it_cannot_be_rotated(tmp_path: Path) -> None:
    path = tmp_path / "broker-1.log"
    (tmp_path / "broker-1.log.1").mkdir()
    with path.open("a") as stream:
        log = RotatingLog(path, stream, bytes_max=10)
        log.write("a line that is too long\n")
        log.write("next\n")
    assert path.read_text() == "a line that is too long\nnext\n"


def test_rotation_continues_after_a_new_file_could_not_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptor(path: Path, mode: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    path = tmp_path / "broker-1.log"
    with path.open("a") as stream:
        log = RotatingLog(path, stream, bytes_max=10)
        with monkeypatch.context() as patched:
            patched.setattr(log_rotation, "open_private", no_descriptor)
            log.write("a line that is too long\n")
        log.write("another line that is too long\n")
        log.write("next\n")
    assert path.read_text() == "next\n"
    assert (tmp_path / "broker-1.log.1").read_text() == "a line that is too long\nanother line that is too long\n"
