"""The history as lines: what is written by several processes is read back as one history in the order of time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.chaos import journal
from tests.chaos.journal import Journal, expand, name_of, read, shorten
from tests.sim.history import END, FETCH, INFO, INIT, NEVER, OK, PRODUCE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the next lines, set by the test."""
    times = [0.0]
    monkeypatch.setattr(journal, "now", lambda: times[0])
    return times


def test_lines_of_two_processes_come_in_the_order_of_time(tmp_path: Path, clock: list[float]) -> None:
    one, two = Journal(tmp_path / "one.jsonl", "one"), Journal(tmp_path / "two.jsonl", "two")
    clock[0] = 1.0
    first = one.invoke(
        PRODUCE, topic="t", partition=0, value="0100000a", seq=0, incarnation=1001, txn=5, tid="x", generation=2
    )
    clock[0] = 2.0
    second = two.invoke(PRODUCE, topic="t", partition=1, value="0200000a")
    clock[0] = 3.0
    two.complete(PRODUCE, second, OK, at=7)
    clock[0] = 4.0
    one.complete(PRODUCE, first, INFO)
    told = read(tmp_path)
    a, b = told.history.operations
    assert (a.process, a.partition, a.values, a.transaction, a.transactional_id) == (
        "one",
        ("t", 0),
        (b"0100000a",),
        5,
        "x",
    )
    assert (a.producer_id, a.producer_epoch, a.base_sequence, a.generation, a.outcome) == (1001, 0, 0, 2, INFO)
    assert (b.process, b.result_offset, b.outcome) == ("two", 7, OK)
    assert a.invoked < b.invoked < b.completed < a.completed


def test_what_a_killed_process_has_not_completed_stays_unknown(tmp_path: Path) -> None:
    one = Journal(tmp_path / "one.jsonl", "one")
    one.invoke(END, txn=1, commit=True)
    with (tmp_path / "one.jsonl").open("ab") as file:
        file.write(b'{"t":9,"proc":"on')
    (end,) = read(tmp_path).history.operations
    assert (end.outcome, end.completed) == (INFO, NEVER)


def test_a_failure_told_twice_counts_once_but_a_success_never(tmp_path: Path) -> None:
    one = Journal(tmp_path / "one.jsonl", "one")
    number = one.invoke(PRODUCE, topic="t", partition=0, value="0100000a")
    one.complete(PRODUCE, number, INFO)
    one.complete(PRODUCE, number, INFO)
    assert len(read(tmp_path).history.operations) == 1
    one.complete(PRODUCE, number, OK, at=1)
    with pytest.raises(AssertionError):
        read(tmp_path)


def test_reads_births_and_notes(tmp_path: Path) -> None:
    one = Journal(tmp_path / "one.jsonl", "one")
    number = one.invoke(FETCH, topic="t", partition=0, isolation=1, offset=3)
    one.complete(FETCH, number, OK, records=[(4, "0100000a")], next=5)
    number = one.invoke(INIT, incarnation=1001, tid="x", generation=1)
    one.complete(INIT, number, OK)
    one.write("kill", INFO, node=2)
    told = read(tmp_path)
    fetch, init = told.history.operations
    assert (fetch.offset, fetch.next_offset, fetch.records) == (3, 5, [(4, b"0100000a")])
    assert (init.result_producer_id, init.result_producer_epoch) == (1001, 0)
    assert [note["node"] for note in told.notes] == [2]


def test_every_line_is_one_json_object(tmp_path: Path) -> None:
    Journal(tmp_path / "one.jsonl", "one").write("kill", INFO, node=2)
    (line,) = (tmp_path / "one.jsonl").read_text().splitlines()
    assert json.loads(line)["proc"] == "one"


def test_names_differ_and_a_damaged_value_is_not_taken_for_one() -> None:
    names = {name_of(process, count) for process in range(1, 40) for count in range(1, 40)}
    assert len(names) == 39 * 39
    value = expand(name_of(35, 36))
    assert shorten(value) == "0z000010"
    assert shorten(value + b".") != "0z000010"
    assert shorten(None) == ""
