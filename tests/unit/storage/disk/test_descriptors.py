"""The reserve of descriptors, in a process whose limit of open files is reached."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def test_operations_use_the_reserve_when_no_descriptor_is_free(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "tests.support.descriptors_exhausted", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
