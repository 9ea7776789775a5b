"""The end of a broker process."""

from __future__ import annotations

import subprocess
import sys

END = """
from odradek.broker.__main__ import _end_process

class Kept:
    def __del__(self):
        print("freed")

kept = Kept()
print("stopped")
_end_process(3)
"""

FAILED_START = """
import asyncio, sys
from odradek.broker import __main__ as main

class Node:
    def __init__(self, *_, on_fatal, **__):
        self.on_fatal = on_fatal

    async def start(self):
        self.on_fatal("the disk failed")
        await asyncio.Event().wait()

    async def stop(self):
        print("stopped")

main.Node = Node
sys.exit(main.main(["--set", "log.dirs=/nowhere", "--set", "listeners=PLAINTEXT://127.0.0.1:0",
                    "--set", "inter.broker.listener.name=PLAINTEXT"]))
"""


def test_fatal_failure_in_the_start_is_printed_and_is_the_exit_code() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FAILED_START], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "stopped\n")
    assert ended.stderr.splitlines()[-1] == "the disk failed"


def test_end_frees_no_objects_and_keeps_output_and_exit_code() -> None:
    """To free the objects of 10,000 partitions takes seconds."""
    ended = subprocess.run([sys.executable, "-c", END], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "stopped\n", "")


def test_exit_code_of_a_process_without_standard_output() -> None:
    """A parent process can close it."""
    command = "import sys; sys.stdout = sys.stderr = None; from odradek.broker.__main__ import _end_process; "
    assert subprocess.run([sys.executable, "-c", f"{command}_end_process(3)"], check=False).returncode == 3
