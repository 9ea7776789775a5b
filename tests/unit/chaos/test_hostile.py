"""The hostile client of a chaos run: its findings, its counters, and lines of a log that show a bug."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.chaos.hostile import RESIDENT_MIB_MAX, HostileClient, unexpected_lines
from tests.chaos.journal import Journal, read
from tests.sim.checkers.hostile import CLOSED, RESPONDED, UNREACHABLE
from tests.support.hostile_attack import FORGED, HUGE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.journal import MergedJournals

TRACEBACK = """2026-01-01T00:00:00Z [error] unexpected exception where=Vote
Traceback (most recent call last):
  File "x.py", line 1, in <module>
"""


def journals(directory: Path, *attacks: tuple[str, str, bool]) -> MergedJournals:
    journal = Journal(directory / "hostile-0.jsonl", "hostile-0")
    for attack, outcome, carried_out in attacks:
        journal.write("hostile", "info", attack=attack, what="VoteRequest", outcome=outcome, carried_out=carried_out)
    return read(directory)


def client(directory: Path) -> HostileClient:
    unused: Any = SimpleNamespace()
    return HostileClient(directory, unused, 1, unused)


def test_attacks_that_reach_a_broker_are_counted_by_kind(tmp_path: Path) -> None:
    history = journals(tmp_path, (FORGED, CLOSED, False), (HUGE, RESPONDED, False), (HUGE, UNREACHABLE, False))
    counters = client(tmp_path).counters(history)
    assert counters[f"hostile: {FORGED}"] == counters[f"hostile: {HUGE}"] == 1
    assert counters["hostile attacks without a connection"] == 1
    assert client(tmp_path).violations(history) == []


def test_forged_request_that_is_carried_out_is_a_violation(tmp_path: Path) -> None:
    history = journals(tmp_path, (FORGED, RESPONDED, True))
    assert client(tmp_path).violations(history) == [
        f"I17 a broker carried out a request of a hostile client: {FORGED}, VoteRequest"
    ]


def test_broker_with_too_much_memory_is_a_violation(tmp_path: Path) -> None:
    hostile = client(tmp_path)
    hostile.resident_mib = {1: RESIDENT_MIB_MAX, 2: RESIDENT_MIB_MAX + 1}
    (violation,) = hostile.violations(journals(tmp_path))
    assert violation.startswith("broker 2 had ")


def test_unexpected_exception_in_a_log_is_reported() -> None:
    assert len(unexpected_lines(1, TRACEBACK)) == 2
    assert unexpected_lines(1, "2026-01-01T00:00:00Z [info] partition truncated offset=4\n") == []
