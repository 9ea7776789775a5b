"""Result of an audit, and its form on a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.pipeline.audit.alignment import Fit
from odradek.pipeline.audit.judgment import Status
from odradek.protocol.internal_topics import TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from odradek.pipeline.audit.judgment import Violation

VIOLATIONS_MAX: Final = 10_000
"""Maximum violations in an `AuditResult`. The table has all of them."""
SHOWN_MAX: Final = 20
"""Maximum violations, and maximum reasons, that are printed. The tables have all of them."""
COLUMNS: Final = 80


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Counts and violations of an audit.

    Attributes:
        decisions: Number of decisions by status.
        reasons: Number of decisions that are not decidable, by reason.
        markers: Number of markers by relation to a decision.
        violations: The violations, or the first VIOLATIONS_MAX of them.
        violation_count: Number of all violations.
        operator_aborts: Places of the markers that an operator may have written, or the first VIOLATIONS_MAX of them.
        partitions: Number of data partitions that were read.
        batches: Number of batches that were read.
        missing: Number of offsets without a batch that compaction does not explain.
        report: HTML report; None without an output directory.
    """

    decisions: Mapping[Status, int]
    reasons: Mapping[str, int]
    markers: Mapping[Fit, int]
    violations: Sequence[Violation]
    violation_count: int
    operator_aborts: Sequence[str]
    partitions: int
    batches: int
    missing: int
    report: Path | None = None

    @property
    def proven(self) -> int:
        """Number of decisions with the right marker in each of their partitions."""
        return self.decisions.get(Status.PROVEN, 0)

    @property
    def ok(self) -> bool:
        """True if no violation was found and at least one decision is proven."""
        return not self.violations and self.proven > 0

    def lines(self) -> Iterator[str]:
        """Yield the lines that the command prints."""
        yield f"{self.batches:,} batches, {self.partitions:,} partitions beside those of {TRANSACTION_STATE}"
        if self.missing:
            yield f"  {self.missing:>10,}  offsets without a batch, which compaction does not explain"
        for status in Status:
            yield f"  {self.decisions.get(status, 0):>10,}  decisions {status.value}"
        for reason, count in Counter(dict(self.reasons)).most_common(SHOWN_MAX):
            yield from _wrapped(f"{count:,}: {reason}", "-")
        for fit in (Fit.MATCH, Fit.REPEATED, Fit.BY_OPERATOR, Fit.EARLIER, Fit.NEWER):
            if self.markers.get(fit, 0):
                yield f"  {self.markers[fit]:>10,}  markers {MARKERS[fit]}"
        for place in self.operator_aborts[:SHOWN_MAX]:
            yield from _wrapped(place, "-")
        yield from _rest(self.markers.get(Fit.BY_OPERATOR, 0))
        yield f"  {self.violation_count:>10,}  violations"
        for violation in self.violations[:SHOWN_MAX]:
            yield from _wrapped(str(violation), "!")
        yield from _rest(self.violation_count)
        if not self.violations and not self.proven:
            yield "no decision is proven: the logs do not contain one with its markers"
        if self.report is not None:
            yield f"report: {self.report}"


MARKERS: Final = {
    Fit.MATCH: "with their decision",
    Fit.REPEATED: "that repeat the marker before them",
    Fit.BY_OPERATOR: "without a decision, as an operator's abort",
    Fit.EARLIER: "whose decision was removed from the log",
    Fit.NEWER: "newer than the transitions that were read",
}


def _rest(count: int) -> Iterator[str]:
    if count > SHOWN_MAX:
        yield f"              and {count - SHOWN_MAX:,} more (--out DIR writes all of them)"


def _wrapped(text: str, mark: str) -> list[str]:
    return textwrap.wrap(
        text, COLUMNS, initial_indent=f"    {mark} ", subsequent_indent="      ", break_on_hyphens=False
    )
