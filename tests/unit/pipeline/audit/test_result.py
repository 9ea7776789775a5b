"""Lines that the command prints."""

from __future__ import annotations

from dataclasses import replace

from odradek.pipeline.audit.alignment import Fit
from odradek.pipeline.audit.judgment import Kind, Status, Violation
from odradek.pipeline.audit.result import COLUMNS, SHOWN_MAX, AuditResult

VIOLATION = Violation(Kind.MISSING_MARKER, "payments-1", 4, 7, "payments", 2, 90, "no COMMIT marker of the decision")


def result(violations: int = 0, proven: int = 5) -> AuditResult:
    return AuditResult(
        decisions={Status.PROVEN: proven, Status.UNDECIDABLE: 2},
        reasons={"payments-3: compaction may have removed the marker": 2},
        markers={Fit.MATCH: 11, Fit.BY_OPERATOR: 1},
        violations=[VIOLATION] * violations,
        violation_count=violations,
        operator_aborts=[f"payments-0 at offset 4: {'payments-' * 6}1, producer 4/7"],
        partitions=3,
        batches=1_000,
        missing=0,
    )


def test_counts_reasons_and_aborts_of_operators_are_printed() -> None:
    lines = list(result().lines())
    text = "\n".join(lines)
    for expected in (
        "5  decisions proven",
        "2: payments-3: compaction",
        "1  markers without a decision",
        "0  violations",
    ):
        assert expected in text
    assert max(map(len, lines)) <= COLUMNS
    assert result().ok


def test_missing_offsets_are_counted_in_the_output() -> None:
    line = "12  offsets without a batch, which compaction does not explain"
    assert line in "\n".join(replace(result(), missing=12).lines())
    assert "offsets without" not in "\n".join(result().lines())


def test_each_violation_is_named_up_to_a_limit() -> None:
    found = result(violations=SHOWN_MAX + 5)
    text = " ".join(" ".join(found.lines()).split())
    assert text.count("marker missing: payments-1, producer 4/7, payments-2 at offset 90") == SHOWN_MAX
    assert "and 5 more" in text
    assert max(map(len, found.lines())) <= COLUMNS
    assert not found.ok


def test_no_proven_decision_is_a_failure() -> None:
    assert not result(proven=0).ok
    assert "no decision is proven" in list(result(proven=0).lines())[-1]
