"""`make console` with real processes: the pages have data of the cluster and of each broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

from tests.support.command_line import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
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
            found: dict[str, None] = {}
            request = Request(f"{address}/metrics", headers={"Accept": "text/event-stream"})
            with urlopen(request, timeout=TIMEOUT_S) as stream:
                for content in samples(stream):
                    rows = content["brokers"]["charts"]["connections"]
                    found |= dict.fromkeys(name for name, values in rows.items() if any(values))
                    if len(found) == BROKERS:
                        break
        finally:
            demo.send_signal(signal.SIGINT)
    assert demo.returncode == 0
    assert len(found) == BROKERS


def samples(stream: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the contents of the events `samples` of a stream."""
    name = b""
    for line in stream:
        field, _, value = line.strip().partition(b": ")
        if field == b"event":
            name = value
        elif (field, name) == (b"data", b"samples"):
            yield json.loads(value)
