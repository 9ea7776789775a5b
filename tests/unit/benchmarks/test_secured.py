"""One round of `make bench` with SASL_SSL: each protocol has a broker that has just started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarks import secured
from benchmarks.measure import Size
from benchmarks.workloads import Latencies
from tests.support.kafka_broker import Usage

if TYPE_CHECKING:
    import pytest


class RecordedSystem:
    """System that notes its start, its stop, and the listeners that its workloads use."""

    name = "recorded"

    def __init__(self, number: int, events: list[str]) -> None:
        self.bootstrap, self.secured_bootstrap = f"plain-{number}", f"secured-{number}"
        self.security: Any = SimpleNamespace(java=Path("client.properties"), librdkafka={})
        self.number = number
        self.events = events

    def prepare(self) -> None: ...

    def start(self) -> None:
        self.events.append(f"start {self.number}")

    def stop(self) -> None:
        self.events.append(f"stop {self.number}")

    def usage(self) -> Usage:
        return Usage(0, 0.0)


def test_each_protocol_is_measured_on_a_broker_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    systems: list[RecordedSystem] = []

    def create() -> RecordedSystem:
        systems.append(RecordedSystem(len(systems) + 1, events))
        return systems[-1]

    def measured(bootstrap: str, *_: object, **__: object) -> float:
        events.append(bootstrap)
        return 2.0 if bootstrap.startswith("plain") else 1.0

    def committed(bootstrap: str, *_: object, **__: object) -> Latencies:
        return Latencies(measured(bootstrap), 0.0, 0.0)

    monkeypatch.setattr(secured, "create_topic", lambda *_: None)
    monkeypatch.setattr(secured, "produce", measured)
    monkeypatch.setattr(secured, "consume", measured)
    monkeypatch.setattr(secured, "transactions", committed)
    result = secured.run_secured_round(create, Size(1, 1.0), lambda _: None)
    first, second = (["start 1", *["plain-1"] * 4, "stop 1"], ["start 2", *["secured-2"] * 4, "stop 2"])
    assert events == first + second
    assert [result.figures[share] for _, _, share in secured.SHARES] == [0.5] * 4
