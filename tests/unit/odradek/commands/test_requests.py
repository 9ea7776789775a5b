"""Errors of commands: printed without a traceback, except the end of the reader of the output."""

from __future__ import annotations

import pytest
import typer

from odradek.commands.requests import exit_on_client_error
from odradek.local.output import FAILED


def test_end_of_the_reader_of_the_output_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BrokenPipeError), exit_on_client_error():
        raise BrokenPipeError(32, "Broken pipe")
    assert capsys.readouterr().err == ""


def test_unreadable_file_is_printed_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as raised, exit_on_client_error():
        raise PermissionError(13, "Permission denied", "client.properties")
    assert raised.value.exit_code == FAILED
    assert "Permission denied: 'client.properties'" in capsys.readouterr().err
