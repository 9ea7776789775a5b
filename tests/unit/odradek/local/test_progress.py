"""The status line of long operations on a terminal that is closed."""

from __future__ import annotations

import io
import os
import pty
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from odradek.local import progress
from odradek.local.progress import status_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    Terminal = tuple[Console, int]


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """A console on a pseudo-terminal, and the descriptor whose closing closes the terminal."""
    controller, user = pty.openpty()
    # Without a buffer, the file has nothing to write when it is closed.
    with io.TextIOWrapper(io.FileIO(user, "w"), write_through=True) as file:
        yield Console(file=file, force_terminal=True), controller


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the thread that redraws the line
@pytest.mark.parametrize("closed", ["before", "during"])
def test_operation_runs_to_its_end_although_the_terminal_is_closed(
    terminal: Terminal, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    console, controller = terminal
    monkeypatch.setattr(progress, "errors", console)
    steps = []
    if closed == "before":
        os.close(controller)
    with status_line("stopping all brokers"):
        steps.append("stopped")
        if closed == "during":
            os.close(controller)
    steps.append("returned")
    assert steps == ["stopped", "returned"]


def test_error_of_the_operation_is_raised(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    console, controller = terminal
    monkeypatch.setattr(progress, "errors", console)
    with pytest.raises(OSError, match="disk"), status_line("stopping all brokers"):
        raise OSError("disk")
    os.close(controller)
