"""The journal: events of several processes are merged into one history by time."""

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
    """The time of the next events; tests set element 0."""
    times = [0.0]
    monkeypatch.setattr(journal, "now", lambda: times[0])
    return times


def test_events_of_two_processes_are_merged_by_time(tmp_path: Path, clock: list[float]) -> None:
    client_1, client_2 = Journal(tmp_path / "c1.jsonl", "c1"), Journal(tmp_path / "c2.jsonl", "c2")
    clock[0] = 1.0
    first = client_1.invoke(
        PRODUCE, topic="t", partition=0, value="0100000a", seq=0, incarnation=1001, txn=5, tid="x", generation=2
    )
    clock[0] = 2.0
    second = client_2.invoke(PRODUCE, topic="t", partition=1, value="0200000a")
    clock[0] = 3.0
    client_2.complete(PRODUCE, second, OK, offset=7)
    clock[0] = 4.0
    client_1.complete(PRODUCE, first, INFO)
    journals = read(tmp_path)
    a, b = journals.history.operations
    assert (a.process, a.partition, a.values, a.transaction, a.transactional_id) == (
        "c1",
        ("t", 0),
        (b"0100000a",),
        5,
        "x",
    )
    assert (a.producer_id, a.producer_epoch, a.base_sequence, a.generation, a.outcome) == (1001, 0, 0, 2, INFO)
    assert (b.process, b.result_offset, b.outcome) == ("c2", 7, OK)
    assert a.invoked < b.invoked < b.completed < a.completed


def test_operation_of_a_killed_process_without_completion_has_an_unknown_result(tmp_path: Path) -> None:
    client = Journal(tmp_path / "c1.jsonl", "c1")
    client.invoke(END, txn=1, commit=True)
    with (tmp_path / "c1.jsonl").open("ab") as file:
        file.write(b'{"t":9,"proc":"c')
    (end,) = read(tmp_path).history.operations
    assert (end.outcome, end.completed) == (INFO, NEVER)


def test_second_completion_is_ignored_if_info_and_an_error_if_ok(tmp_path: Path) -> None:
    client = Journal(tmp_path / "c1.jsonl", "c1")
    number = client.invoke(PRODUCE, topic="t", partition=0, value="0100000a")
    client.complete(PRODUCE, number, INFO)
    client.complete(PRODUCE, number, INFO)
    assert len(read(tmp_path).history.operations) == 1
    client.complete(PRODUCE, number, OK, offset=1)
    with pytest.raises(AssertionError):
        read(tmp_path)


def test_fetch_init_and_notes_are_read(tmp_path: Path) -> None:
    client = Journal(tmp_path / "c1.jsonl", "c1")
    number = client.invoke(FETCH, topic="t", partition=0, isolation=1, offset=3)
    client.complete(FETCH, number, OK, records=[(4, "0100000a")], next=5)
    number = client.invoke(INIT, incarnation=1001, tid="x", generation=1)
    client.complete(INIT, number, OK)
    client.write("kill", INFO, node=2)
    journals = read(tmp_path)
    fetch, init = journals.history.operations
    assert (fetch.offset, fetch.next_offset, fetch.records) == (3, 5, [(4, b"0100000a")])
    assert (init.result_producer_id, init.result_producer_epoch) == (1001, 0)
    assert [note["node"] for note in journals.notes] == [2]


def test_each_line_is_one_json_object(tmp_path: Path) -> None:
    Journal(tmp_path / "c1.jsonl", "c1").write("kill", INFO, node=2)
    (line,) = (tmp_path / "c1.jsonl").read_text().splitlines()
    assert json.loads(line)["proc"] == "c1"


def test_names_are_unique_and_a_corrupt_value_is_not_shortened() -> None:
    names = {name_of(process, count) for process in range(1, 40) for count in range(1, 40)}
    assert len(names) == 39 * 39
    value = expand(name_of(35, 36))
    assert shorten(value) == "0z000010"
    assert shorten(value + b".") != "0z000010"
    assert shorten(None) == ""
