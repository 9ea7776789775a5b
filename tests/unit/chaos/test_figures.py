"""Figures of a run, computed from constructed journals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos import journal
from tests.chaos.figures import Figures, add_detections, measure
from tests.chaos.journal import Journal, read
from tests.sim.history import END, OK, PRODUCE

if TYPE_CHECKING:
    from pathlib import Path


class Script:
    """Writes journal events of one client and of the fault injector at given times."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.now = 0.0
        monkeypatch.setattr(journal, "now", lambda: self.now)
        self.client = Journal(directory / "c001.jsonl", "c001")
        self.injector = Journal(directory / "fault-injector.jsonl", "fault-injector")

    def record(self, begin: float, end: float | None, *, partition: int = 0, txn: int = -1) -> None:
        details = {"txn": txn, "tid": "x"} if txn >= 0 else {}
        self.now = begin
        number = self.client.invoke(PRODUCE, topic="t", partition=partition, value="0100000a", **details)
        if end is not None:
            self.now = end
            self.client.complete(PRODUCE, number, OK, offset=0)

    def commit(self, begin: float, end: float, txn: int) -> None:
        self.now = begin
        number = self.client.invoke(END, txn=txn, commit=True, tid="x", incarnation=1)
        self.now = end
        self.client.complete(END, number, OK)

    def note(self, at: float, op: str, **details: object) -> None:
        self.now = at
        self.injector.write(op, "info", **details)

    def figures(self) -> Figures:
        return measure(read(self.directory))


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(tmp_path, monkeypatch)


def test_longest_unavailability_is_the_longest_gap_between_acknowledgments(script: Script) -> None:
    script.record(1.0, 1.1, partition=0)
    script.record(1.2, 1.3, partition=1)
    script.record(1.4, 4.0, partition=1)
    script.record(5.0, 5.5, partition=0)
    figures = script.figures()
    assert figures.longest_unavailability_s == pytest.approx(2.7)
    assert figures.longest_unavailability_of_a_partition_s == pytest.approx(4.4)
    assert (figures.records_acknowledged, figures.records_unknown) == (4, 0)


def test_kill_to_commit_ignores_transactions_that_began_before_the_kill(script: Script) -> None:
    script.record(1.0, 1.1, txn=1)
    script.note(2.0, "kill", node=1)
    script.commit(2.1, 2.2, 1)
    script.record(2.5, 2.6, txn=2)
    script.commit(2.7, 3.5, 2)
    figures = script.figures()
    assert figures.kills == 1
    assert figures.kill_to_commit_max_s == pytest.approx(1.5)
    assert figures.transactions_committed == 2


def test_partition_and_transactional_id_without_progress_after_the_faults_are_reported(script: Script) -> None:
    script.record(1.0, 1.1, partition=0)
    script.record(1.2, 1.3, partition=1, txn=1)
    script.commit(1.4, 1.5, 1)
    script.note(2.0, "all healed")
    script.record(3.0, 3.2, partition=0)
    figures = script.figures()
    assert figures.recovery_after_heal_s == pytest.approx(1.2)
    assert len(figures.not_recovered) == 2
    assert "t-1" in figures.not_recovered[0]
    assert "x ended no transaction" in figures.not_recovered[1]


def test_failure_declaration_times_are_read_from_the_brokers_logs(script: Script) -> None:
    script.record(1.0, 1.1)
    script.note(2.0, "clock", wall=1002.0)
    script.note(3.0, "kill", node=2)
    fields = "broker_epoch=8 member=2 node=1 silent_ms=1"
    line = f"1970-01-01T00:16:43.250000Z [info     ] node failure declared          {fields}\n"
    early = line.replace("16:43", "16:42")
    other = line.replace("member=2", "member=3").replace("43.25", "43.05")
    figures = script.figures()
    add_detections(figures, read(script.directory), [early + line, other])
    assert figures.kill_to_declaration_median_s == pytest.approx(0.25)
