"""Processes that do not react to SIGTERM, as a broker whose event loop is busy or that is stopped by SIGSTOP."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek.local.processes import ProcessId

if TYPE_CHECKING:
    from collections.abc import Iterator

BUSY = """
import asyncio, signal, sys

def work():
    print("ready 127.0.0.1:1", flush=True)
    while True:
        pass

loop = asyncio.new_event_loop()
loop.add_signal_handler(signal.SIGTERM, loop.stop)
loop.call_soon(work)
loop.run_forever()
"""
"""Program with the signal handler of a broker, and with a callback of its event loop that does not end."""
IDLE = 'print("ready 127.0.0.1:1", flush=True); import time; time.sleep(600)'
"""Program that SIGTERM ends."""


def command(program: str) -> list[str]:
    """Return the command line of a Python program."""
    return [sys.executable, "-c", program]


@contextmanager
def running(program: str) -> Iterator[ProcessId]:
    """Run a program in the background, from its line `ready` on. Kill it at the end."""
    process = subprocess.Popen(command(program), stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith(b"ready")
        identity = ProcessId.of(process.pid)
        assert identity is not None
        yield identity
    finally:
        process.kill()
        process.communicate()
