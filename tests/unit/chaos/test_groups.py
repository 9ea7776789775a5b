"""Invariant I7 on constructed evidence: one valid run of two groups, and one case per violation."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.clients.common import COMMITTER, TRANSFORMER
from tests.chaos.group_log import Committed, GroupOffsetsLog
from tests.chaos.groups import DECREASED, EXPOSED, Group, GroupEvidence, check_groups, measure_groups

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITION = ("in", 0)
INPUTS = [0, 1, 3, 4]
"""Offsets of the visible inputs. Offsets 2 and 5 are markers."""


def note(op: str, t: float, proc: str = "c1", **details: Any) -> dict[str, Any]:
    return {"op": op, "t": t, "proc": proc, **details}


def consumed(t: float, offsets: list[int], txn: int = -1, proc: str = "c1") -> dict[str, Any]:
    return note("consumed", t, proc, partition=list(PARTITION), offsets=offsets, txn=txn)


def committed(t: float, offset: int, proc: str = "c1") -> dict[str, Any]:
    return note("committed", t, proc, ends=[[*PARTITION, offset]])


def assigned(t: float, proc: str) -> dict[str, Any]:
    return note("assigned", t, proc, partitions=[list(PARTITION)])


def valid_run() -> GroupEvidence:
    """Return the evidence of two groups.

    In `x`, c1 transforms all inputs; in `t`, c1 and then c2 commit two inputs each.
    """
    notes = [assigned(0, "c1"), consumed(1, [0, 1], 11), committed(2, 2), consumed(3, [3, 4], 12), committed(7, 5)]
    outputs = {PARTITION: Counter(INPUTS)}
    transformers = Group("x", TRANSFORMER, "classic", ["c1"], notes, outputs, aborted=2, offsets={PARTITION: 5})
    notes = [
        assigned(0, "c1"),
        consumed(1, [0, 1]),
        committed(2, 2),
        assigned(3, "c2"),
        consumed(4, [3, 4], proc="c2"),
        committed(5, 5, "c2"),
    ]
    committers = Group("t", COMMITTER, "consumer", ["c1", "c2"], notes, offsets={PARTITION: 5})
    log = GroupOffsetsLog(
        [Committed(name, PARTITION, offset, 1000 * offset) for name in ("x", "t") for offset in (2, 5)]
    )
    log.generations = {"x": {1}, "t": {1, 2}}
    fetched = {"x": {PARTITION: 5}, "t": {PARTITION: 5}}
    return GroupEvidence({"x": transformers, "t": committers}, log, {PARTITION: INPUTS}, fetched)


def test_valid_run_has_no_findings() -> None:
    evidence = valid_run()
    assert check_groups(evidence) == []
    assert not any(evidence.counters.values())


def test_figures_of_a_valid_run() -> None:
    figures = measure_groups(valid_run())
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


def duplicate_output(evidence: GroupEvidence) -> None:
    evidence.groups["x"].outputs[PARTITION][3] += 1


def output_of_an_aborted_input(evidence: GroupEvidence) -> None:
    evidence.groups["x"].outputs[PARTITION][2] += 1


def no_output(evidence: GroupEvidence) -> None:
    del evidence.groups["x"].outputs[PARTITION][1]


def output_without_offset(evidence: GroupEvidence) -> None:
    evidence.groups["x"].offsets = {PARTITION: 4}


def no_committed_offset(evidence: GroupEvidence) -> None:
    evidence.groups["x"].offsets = {}


def skipped_input(evidence: GroupEvidence) -> None:
    evidence.groups["t"].notes[1]["offsets"] = [0]


def consumed_aborted_input(evidence: GroupEvidence) -> None:
    evidence.groups["t"].notes[1]["offsets"] = [0, 1, 2]


def decreased_offset(evidence: GroupEvidence) -> None:
    evidence.log.commits.insert(1, Committed("t", PARTITION, 9, 3000))


def removed_offset(evidence: GroupEvidence) -> None:
    evidence.log.commits.append(Committed("x", PARTITION, -1, 9000))


def wrong_offset_fetch(evidence: GroupEvidence) -> None:
    evidence.fetched = {"x": {PARTITION: 2}, "t": {PARTITION: 5}}


def start_below_committed_offset(evidence: GroupEvidence) -> None:
    evidence.groups["t"].notes[4]["offsets"] = [1, 3, 4]


def lost_acknowledged_commit(evidence: GroupEvidence) -> None:
    evidence.groups["t"].notes.append(committed(6, 8, "c2"))


def hanging_offset(evidence: GroupEvidence) -> None:
    evidence.log.open[77] = [Committed("x", PARTITION, 9, 1)]


@pytest.mark.parametrize(
    ("violation", "expected"),
    [
        (duplicate_output, "I7 x: in-0 at 3 has more than one visible output"),
        (output_of_an_aborted_input, "I7 x: in-0 at 2 has a visible output, but is not a visible input"),
        (no_output, "I7 x: in-0 at 1 has no visible output"),
        (output_without_offset, "I7 x: in-0 at 4 has a visible output, but is not below the committed offset"),
        (no_committed_offset, "I7 x: in-0 at 0, 1, 3, 4 has a visible output, but is not below"),
        (skipped_input, "I7 t: no member consumed in-0 at 1"),
        (consumed_aborted_input, "I7 t: a member consumed in-0 at 2, which is not a visible input"),
        (decreased_offset, "I7 t: the committed offset of in-0 decreases from 9 to 2"),
        (removed_offset, "I7 x: the committed offset of in-0 decreases from 5 to -1"),
        (wrong_offset_fetch, "I7 x: OffsetFetch returns 2 for in-0, the log has 5"),
        (start_below_committed_offset, "I7 t: c2 starts in-0 at 1, but offset 2 was committed before"),
        (lost_acknowledged_commit, "I7 t: offset 8 of in-0 was acknowledged, but the log has 5"),
        (hanging_offset, "I7 hanging: 1 offsets of producer 77"),
    ],
)
def test_violation_is_reported(violation: Callable[[GroupEvidence], None], expected: str) -> None:
    evidence = valid_run()
    violation(evidence)
    assert any(finding.startswith(expected) for finding in check_groups(evidence))


@pytest.mark.parametrize(("exposed", "reported"), [(12, False), (11, True)])
def test_violation_in_an_exposed_transaction_is_counted_not_reported(exposed: int, reported: bool) -> None:
    evidence = valid_run()
    duplicate_output(evidence)
    evidence.exposed = {exposed: None}
    assert bool(check_groups(evidence)) is reported
    assert evidence.counters[EXPOSED] == (0 if reported else 1)


@pytest.mark.parametrize(
    ("client", "since", "reported"), [("t/c1", 1.5, False), ("t/c1", 8.0, True), ("x/c1", 1.5, True)]
)
def test_offset_decrease_during_a_late_commit_of_the_group_is_counted_not_reported(
    client: str, since: float, reported: bool
) -> None:
    evidence = valid_run()
    decreased_offset(evidence)
    evidence.clock = 0.0
    evidence.late = [{"client": client, "since": since, "until": since + 2}]
    assert any("decreases" in finding for finding in check_groups(evidence)) is reported
    assert evidence.counters[DECREASED] == (0 if reported else 1)
