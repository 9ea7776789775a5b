"""Errors of commands: printed without a traceback, except the end of the reader of the output."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
import typer

from odradek.commands.directories import exit_on_failure
from odradek.commands.requests import exit_on_client_error
from odradek.local.directory import ClusterDirectory, ClusterState
from odradek.local.output import FAILED
from odradek.local.plan import Plan

if TYPE_CHECKING:
    from pathlib import Path


def test_end_of_the_reader_of_the_output_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BrokenPipeError), exit_on_client_error():
        raise BrokenPipeError(32, "Broken pipe")
    assert capsys.readouterr().err == ""


def test_unreadable_file_is_printed_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as raised, exit_on_client_error():
        raise PermissionError(13, "Permission denied", "client.properties")
    assert raised.value.exit_code == FAILED
    assert capsys.readouterr().err == (
        "client.properties: Permission denied; give this user permission, or use another path\n"
    )


def test_full_disk_is_printed_with_the_file_and_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ClusterDirectory(tmp_path)
    (tmp_path / "cluster.tmp").symlink_to("/dev/full")
    with pytest.raises(typer.Exit), exit_on_failure():
        cluster.write_state(ClusterState(Plan("id", "127.0.0.1", {1: 9092}, [])))
    assert capsys.readouterr().err == (
        f"{tmp_path}/cluster.tmp: No space left on device; free space on its file system, and repeat the command\n"
    )


def test_full_disk_under_standard_output_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), exit_on_client_error():
        raise OSError(errno.ENOSPC, "No space left on device")
    assert capsys.readouterr().err.startswith("standard output: No space left on device; free space on its file system")


def test_start_that_fails_on_a_full_disk_removes_its_new_directory(tmp_path: Path) -> None:
    path = tmp_path / "new" / "cluster"
    with pytest.raises(OSError, match="No space left"), ClusterDirectory(path).exclusive_start():
        raise OSError(errno.ENOSPC, "No space left on device", str(path / "cluster.tmp"))
    assert list(tmp_path.iterdir()) == []
