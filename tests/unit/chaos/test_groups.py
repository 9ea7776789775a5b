"""The verdict on groups: one good story, and one bad per promise that a group makes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.clients.common import TAKER, TRANSFORMER
from tests.chaos.group_log import Committed, GroupLog
from tests.chaos.groups import BACK, EXPOSED, Group, GroupEvidence, check_groups, measure_groups

if TYPE_CHECKING:
    from collections.abc import Callable

PLACE = ("in", 0)
INPUTS = [0, 1, 3, 4]
"""At 2 and 5 stand markers."""


def note(op: str, t: float, proc: str = "c1", **details: Any) -> dict[str, Any]:
    return {"op": op, "t": t, "proc": proc, **details}


def took(t: float, offsets: list[int], txn: int = -1, proc: str = "c1") -> dict[str, Any]:
    return note("took", t, proc, place=list(PLACE), offsets=offsets, txn=txn)


def committed(t: float, offset: int, proc: str = "c1") -> dict[str, Any]:
    return note("committed", t, proc, ends=[[*PLACE, offset]])


def assigned(t: float, proc: str) -> dict[str, Any]:
    return note("assigned", t, proc, places=[list(PLACE)])


def good() -> GroupEvidence:
    """A group of transformers and one of takers. c1 has both halves of the first, c1 and then c2 one each of the second."""
    told = [assigned(0, "c1"), took(1, [0, 1], 11), committed(2, 2), took(3, [3, 4], 12), committed(7, 5)]
    outputs = {PLACE: Counter(INPUTS)}
    transformers = Group("x", TRANSFORMER, "classic", ["c1"], told, outputs, aborted=2, offsets={PLACE: 5})
    told = [
        assigned(0, "c1"),
        took(1, [0, 1]),
        committed(2, 2),
        assigned(3, "c2"),
        took(4, [3, 4], proc="c2"),
        committed(5, 5, "c2"),
    ]
    takers = Group("t", TAKER, "consumer", ["c1", "c2"], told, offsets={PLACE: 5})
    log = GroupLog([Committed(name, PLACE, offset, 1000 * offset) for name in ("x", "t") for offset in (2, 5)])
    log.generations = {"x": {1}, "t": {1, 2}}
    fetched = {"x": {PLACE: 5}, "t": {PLACE: 5}}
    return GroupEvidence({"x": transformers, "t": takers}, log, {PLACE: INPUTS}, fetched)


def test_a_good_story_has_no_findings() -> None:
    evidence = good()
    assert check_groups(evidence) == []
    assert not any(evidence.counters.values())


def test_the_figures_of_a_good_story() -> None:
    figures = measure_groups(good())
    assert figures["x"].as_dict() == {
        "protocol": "classic",
        "kind": TRANSFORMER,
        "members": 1,
        "rebalances": 1,
        "inputs": 4,
        "aborted": 2,
        "longest_pause_s": 5,
    }
    assert (figures["t"].members, figures["t"].rebalances, figures["t"].inputs) == (2, 2, 4)


def twice(evidence: GroupEvidence) -> None:
    evidence.groups["x"].outputs[PLACE][3] += 1


def of_an_aborted_input(evidence: GroupEvidence) -> None:
    evidence.groups["x"].outputs[PLACE][2] += 1


def no_output(evidence: GroupEvidence) -> None:
    del evidence.groups["x"].outputs[PLACE][1]


def output_without_offset(evidence: GroupEvidence) -> None:
    evidence.groups["x"].offsets = {PLACE: 4}


def nothing_is_committed(evidence: GroupEvidence) -> None:
    evidence.groups["x"].offsets = {}


def taken_by_nobody(evidence: GroupEvidence) -> None:
    evidence.groups["t"].notes[1]["offsets"] = [0]


def taken_although_aborted(evidence: GroupEvidence) -> None:
    evidence.groups["t"].notes[1]["offsets"] = [0, 1, 2]


def back(evidence: GroupEvidence) -> None:
    evidence.log.commits.insert(1, Committed("t", PLACE, 9, 3000))


def removed(evidence: GroupEvidence) -> None:
    evidence.log.commits.append(Committed("x", PLACE, -1, 9000))


def fetched_differs(evidence: GroupEvidence) -> None:
    evidence.fetched = {"x": {PLACE: 2}, "t": {PLACE: 5}}


def begins_before(evidence: GroupEvidence) -> None:
    evidence.groups["t"].notes[4]["offsets"] = [1, 3, 4]


def acknowledged_is_gone(evidence: GroupEvidence) -> None:
    evidence.groups["t"].notes.append(committed(6, 8, "c2"))


def hanging(evidence: GroupEvidence) -> None:
    evidence.log.open[77] = [Committed("x", PLACE, 9, 1)]


@pytest.mark.parametrize(
    ("anomaly", "found"),
    [
        (twice, "I7 x: in-0 at 3 has more than one visible output"),
        (of_an_aborted_input, "I7 x: in-0 at 2 has a visible output and is no visible input"),
        (no_output, "I7 x: in-0 at 1 has no visible output"),
        (output_without_offset, "I7 x: in-0 at 4 has a visible output, but lies not below its offset"),
        (nothing_is_committed, "I7 x: in-0 at 0, 1, 3, 4 has a visible output, but lies not below"),
        (taken_by_nobody, "I7 t: in-0 at 1 was taken by nobody"),
        (taken_although_aborted, "I7 t: in-0 at 2 was read and is no visible input"),
        (back, "I7 t: its offset of in-0 goes back from 9 to 2"),
        (removed, "I7 x: its offset of in-0 goes back from 5 to -1"),
        (fetched_differs, "I7 x: OffsetFetch says 2 of in-0, the log 5"),
        (begins_before, "I7 t: c2 begins in-0 at 1, 2 was committed before"),
        (acknowledged_is_gone, "I7 t: 8 of in-0 was acknowledged as committed, it is 5"),
        (hanging, "I7 hanging: 1 offsets of producer 77"),
    ],
)
def test_an_anomaly_is_found_by_name(anomaly: Callable[[GroupEvidence], None], found: str) -> None:
    evidence = good()
    anomaly(evidence)
    assert any(finding.startswith(found) for finding in check_groups(evidence))


@pytest.mark.parametrize(("exposed", "judged"), [(12, False), (11, True)])
def test_only_inputs_of_an_exposed_transaction_are_counted_apart(exposed: int, judged: bool) -> None:
    evidence = good()
    twice(evidence)
    evidence.exposed = {exposed: None}
    assert bool(check_groups(evidence)) is judged
    assert evidence.counters[EXPOSED] == (0 if judged else 1)


@pytest.mark.parametrize(
    ("client", "since", "judged"), [("t/c1", 1.5, False), ("t/c1", 8.0, True), ("x/c1", 1.5, True)]
)
def test_a_late_commit_excuses_its_own_group_while_it_is_on_its_way(client: str, since: float, judged: bool) -> None:
    evidence = good()
    back(evidence)
    evidence.clock = 0.0
    evidence.late = [{"client": client, "since": since, "until": since + 2}]
    assert any("goes back" in finding for finding in check_groups(evidence)) is judged
    assert evidence.counters[BACK] == (0 if judged else 1)
