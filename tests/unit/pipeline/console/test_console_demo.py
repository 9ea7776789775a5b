"""`make console`: the processes that it starts, with fakes of them."""

from __future__ import annotations

import io
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from odradek.pipeline.cluster.access import Access
from odradek.pipeline.console import __main__ as main
from odradek.pipeline.flights import feed, source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

METRICS = ["http://127.0.0.1:10092/metrics", "http://127.0.0.1:10093/metrics"]


class FakeCluster:
    """Fake of DemoCluster with two brokers."""

    access = Access("127.0.0.1:9092")

    def __init__(self, *_: Any) -> None:
        pass

    def metrics(self) -> list[str]:
        return METRICS

    def stop(self) -> None:
        pass


def test_console_receives_the_metrics_of_all_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[Sequence[str]] = []

    class FakeProcess:
        """Fake of OwnedProcess: a console that starts."""

        def __init__(self, command: Sequence[str], **_: Any) -> None:
            commands.append(command)
            self.output = io.StringIO("console http://127.0.0.1:8080\n")

        def stop(self) -> None:
            pass

    monkeypatch.setattr(main, "DemoCluster", FakeCluster)
    monkeypatch.setattr(main, "OwnedProcess", FakeProcess)
    monkeypatch.setattr(source, "load_flights", lambda _: None)
    monkeypatch.setattr(feed, "write_feed", lambda *_: None)
    ended = threading.Event()
    ended.set()
    with ExitStack() as cleanup:
        assert main.run(main.parse(["--out", str(tmp_path)]), cleanup, ended) == 0
    console = next(command for command in commands if "console" in command)
    assert [console[at + 1] for at, each in enumerate(console) if each == "--prometheus"] == METRICS
