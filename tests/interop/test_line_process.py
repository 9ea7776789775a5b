"""LineProcess: a client that cannot start."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.interop.drivers.line_process import ClientFailed, LineProcess

pytestmark = pytest.mark.interop


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.exit('no such class')", "the client's process ended with 1: no such class"),
        (r"print('error\tx\tno broker', flush=True); input()", "no broker"),
    ],
)
def test_client_that_does_not_start_raises_its_error_and_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, program: str, message: str
) -> None:
    started: list[subprocess.Popen[str]] = []

    class Noted(subprocess.Popen[str]):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[call-overload]
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    with pytest.raises(ClientFailed, match=message):
        LineProcess(sys.executable, "-c", program)
    [process] = started
    assert process.poll() is not None
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdin.closed
    assert process.stdout.closed
