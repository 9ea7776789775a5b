"""Foreground ``up``: brokers that end unexpectedly."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from odradek.local.directory import ClusterDirectory, ClusterState
from tests.unit.odradek.local.test_directory import ENDED, PLAN

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path
from odradek.local.directory import ClusterDirectory
from odradek.local.watch import BrokerWatch
sys.exit(BrokerWatch(ClusterDirectory(Path(sys.argv[1])), []).run())
"""


def test_broker_that_ended_before_the_watch_began_is_reported(tmp_path: Path) -> None:
    ClusterDirectory(tmp_path).write_state(ClusterState(PLAN, {2: ENDED}, [1, 2, 3]))
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=30, check=False
    )
    assert completed.returncode == 1
    assert completed.stderr.startswith("broker 2 ended unexpectedly; see ")
