"""The wait for a start: its end while brokers recover their logs."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from odradek.local.processes import BrokerFailed
from odradek.local.startup import RECOVERY_EVENT, wait_ready

if TYPE_CHECKING:
    from collections.abc import Iterator


class RecoveringBroker:
    """Broker that logs progress `lines` times, once per question, and is ready after the question `ready_after`."""

    node_id = 1
    command = SimpleNamespace(log="broker-1.log")

    def __init__(self, lines: int, ready_after: int) -> None:
        self.lines, self.ready_after = lines, ready_after
        self.questions = 0
        self._reading, self._writing = os.pipe()

    def fileno(self) -> int:
        return self._reading

    def is_ready(self) -> bool:
        return True

    def last_log_line(self, containing: str = "") -> str:
        if not containing:
            return "the last line"
        assert containing == RECOVERY_EVENT
        self.questions += 1
        if self.questions == self.ready_after:
            os.write(self._writing, b"ready")
        return f"{RECOVERY_EVENT} loaded={min(self.questions, self.lines)}"

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


@pytest.fixture
def brokers() -> Iterator[list[RecoveringBroker]]:
    made: list[RecoveringBroker] = []
    yield made
    for broker in made:
        broker.close()


def test_start_goes_on_while_its_recovery_makes_progress(brokers: list[RecoveringBroker]) -> None:
    broker: Any = RecoveringBroker(lines=5, ready_after=5)
    brokers.append(broker)
    wait_ready([broker], timeout_s=0.01)
    assert broker.questions == 5


def test_start_ends_if_its_recovery_makes_no_progress(brokers: list[RecoveringBroker]) -> None:
    broker: Any = RecoveringBroker(lines=3, ready_after=10)
    brokers.append(broker)
    with pytest.raises(BrokerFailed, match="whose last line is: the last line"):
        wait_ready([broker], timeout_s=0.01)
    assert broker.questions == 4
