"""`make console` with real processes: the pages have data of the cluster and of each broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from tests.support.command_line import TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

BROKERS = 3


@pytest.mark.full
def test_charts_have_samples_of_all_brokers(tmp_path: Path) -> None:
    command = ["-m", "odradek.pipeline.console", "--listen", "127.0.0.1:0", "--out", str(tmp_path)]
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as demo:
        try:
            assert demo.stdout is not None
            lines = [demo.stdout.readline() for _ in range(3)]
            address = next(line.split()[1] for line in lines if line.startswith("console "))
            deadline = time.monotonic() + TIMEOUT_S
            brokers: dict[str, list[float | None]] = {}
            while len([name for name, values in brokers.items() if any(values)]) < BROKERS:
                assert time.monotonic() < deadline
                with urlopen(f"{address}/metrics/data", timeout=TIMEOUT_S) as response:
                    brokers = json.load(response)["brokers"]["charts"]["connections"]
                time.sleep(0.2)
        finally:
            demo.send_signal(signal.SIGINT)
    assert demo.returncode == 0
    assert len(brokers) == BROKERS
