"""What a foreground ``up`` says of brokers that end by themselves."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from odradek.local.directory import ClusterDirectory, ClusterState
from tests.unit.odradek.local.test_directory import GONE, PLAN

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path
from odradek.local.directory import ClusterDirectory
from odradek.local.watch import BrokerWatch
sys.exit(BrokerWatch(ClusterDirectory(Path(sys.argv[1])), []).run())
"""


def test_a_broker_that_is_gone_before_it_is_watched_is_missed_all_the_same(tmp_path: Path) -> None:
    ClusterDirectory(tmp_path).write_state(ClusterState(PLAN, {2: GONE}, [1, 2, 3]))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("broker 2 ended unexpectedly; see ")
