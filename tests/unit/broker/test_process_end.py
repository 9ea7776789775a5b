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


def test_end_frees_no_objects_and_keeps_output_and_exit_code() -> None:
    """To free the objects of 10,000 partitions takes seconds."""
    ended = subprocess.run([sys.executable, "-c", END], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "stopped\n", "")


def test_exit_code_of_a_process_without_standard_output() -> None:
    """A parent process can close it."""
    command = "import sys; sys.stdout = sys.stderr = None; from odradek.broker.__main__ import _end_process; "
    assert subprocess.run([sys.executable, "-c", f"{command}_end_process(3)"], check=False).returncode == 3
