"""Compare the results of the Spark job with the source data, row by row. All functions are pure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from odradek.pipeline.flights.plan import Intent
from odradek.pipeline.flights.source import COLUMNS, ROW, canonical

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from odradek.pipeline.flights.progress_topic import Progress

MEAN_TOLERANCE = 1e-9
"""Maximum relative difference of two means. Spark and pandas add the delays in different orders."""
FINDINGS_SHOWN_MAX = 5
"""Maximum findings of each kind in `VerificationResult.findings`."""


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """Counts of a verification. The run passes if all counts except `expected` and `seen` are 0.

    Attributes:
        expected: Rows of the source.
        seen: Rows that the Spark job wrote.
        lost: Rows of the source that the job did not receive from a committed attempt.
        duplicated: Additional copies of a row that the job received from committed attempts.
        aborted: Rows that the job received from attempts that were not committed.
        altered: Rows that differ from the source, or are not in the source.
        wrong_groups: Groups of carrier and origin with a wrong count, mean or percentile.
        wrong_hours: Hours that were not committed exactly once.
        lost_commits: Attempts whose commit a broker acknowledged, and that have no progress record. The producer writes
            such an hour again, so that no row is missing. Only the progress record of the first attempt is missing.
        findings: The first `FINDINGS_SHOWN_MAX` findings of each kind.
    """

    expected: int
    seen: int
    lost: int = 0
    duplicated: int = 0
    aborted: int = 0
    altered: int = 0
    wrong_groups: int = 0
    wrong_hours: int = 0
    lost_commits: int = 0
    findings: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        rows = (self.lost, self.duplicated, self.aborted, self.altered)
        return self.expected > 0 and not any((*rows, self.wrong_groups, self.wrong_hours, self.lost_commits))


@dataclass(frozen=True, slots=True)
class RowComparison:
    """Counts of a comparison of rows with the source: see `VerificationResult`."""

    expected: int
    seen: int
    lost: int
    duplicated: int
    aborted: int
    altered: int
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CopiesResult:
    """Comparison of the copies with the source.

    Attributes:
        rows: Comparison of the rows.
        batches: Batches with a visible copy.
        mixed: Batches with copies of several runs of the driver.
    """

    rows: RowComparison
    batches: int
    mixed: int

    @property
    def passed(self) -> bool:
        rows = self.rows
        return rows.expected > 0 and not any((rows.lost, rows.duplicated, rows.aborted, rows.altered, self.mixed))


def compare_rows(source: pd.DataFrame, seen: pd.DataFrame, committed: Collection[str]) -> RowComparison:
    """Compare rows with the source. `committed` has the names of the attempts whose rows a reader may receive."""
    uncommitted = ~seen["attempt"].isin(list(committed))
    kept = seen[~uncommitted]
    repeated = kept[ROW].duplicated()
    unique = canonical(kept[~repeated])
    missing = source.loc[~source[ROW].isin(unique[ROW]), ROW]
    altered = altered_rows(source, unique)
    return RowComparison(
        expected=len(source),
        seen=len(seen),
        lost=len(missing),
        duplicated=int(repeated.sum()),
        aborted=int(uncommitted.sum()),
        altered=len(altered),
        findings=(
            *first_findings("lost row", missing),
            *first_findings("duplicated row", kept.loc[repeated, ROW]),
            *first_findings("row of an aborted attempt", seen.loc[uncommitted, "attempt"]),
            *first_findings("altered row", altered),
        ),
    )


def verify_copies(source: pd.DataFrame, copies: pd.DataFrame, progress: Iterable[Progress]) -> CopiesResult:
    """Compare the copies with the source. The columns `batch` and `run` have the batch and run that wrote a copy."""
    runs = copies.groupby("batch")["run"].nunique()
    return CopiesResult(compare_rows(source, copies, committed_attempts(progress)), len(runs), int((runs > 1).sum()))


def verify(
    source: pd.DataFrame,
    seen: pd.DataFrame,
    delays: pd.DataFrame,
    progress: Sequence[Progress],
    acknowledged: Collection[str],
) -> VerificationResult:
    """Compare the results of the Spark job and the committed progress records with the source.

    Args:
        source: The flights that the feed of the producer contains.
        seen: The rows that the job wrote. The column `attempt` has the attempt that wrote the record.
        delays: The last values of each group: carrier, origin, flights, mean, p95.
        progress: The committed progress records.
        acknowledged: Names of the attempts whose commit a broker acknowledged.
    """
    rows = compare_rows(source, seen, committed_attempts(progress))
    groups = wrong_groups(expected_delays(source), delays)
    wrong_hours = hours_not_once(progress, source["time_hour"].nunique())
    lost_commits = sorted(set(acknowledged) - {record.attempt for record in progress})
    return VerificationResult(
        expected=rows.expected,
        seen=rows.seen,
        lost=rows.lost,
        duplicated=rows.duplicated,
        aborted=rows.aborted,
        altered=rows.altered,
        wrong_groups=len(groups),
        wrong_hours=len(wrong_hours),
        lost_commits=len(lost_commits),
        findings=(
            *rows.findings,
            *first_findings("wrong group", groups),
            *first_findings("hour not committed exactly once", wrong_hours),
            *first_findings("acknowledged commit without a progress record", lost_commits),
        ),
    )


def committed_attempts(progress: Iterable[Progress]) -> frozenset[str]:
    """Return the names of the attempts whose rows a read_committed reader may receive.

    An attempt that the producer meant to abort is left out, even if its progress record was read. Otherwise, a broker
    that delivers the whole aborted transaction would pass the verification.
    """
    return frozenset(record.attempt for record in progress if not record.attempt.endswith(f".{Intent.ABORT}"))


def hours_not_once(progress: Iterable[Progress], hours: int) -> list[int]:
    """Return the hours from 0 to `hours` - 1 that were not committed exactly once, and all committed hours beyond."""
    commits = Counter(record.hour for record in progress)
    return [hour for hour in sorted(set(range(hours)) | set(commits)) if commits[hour] != 1 or hour >= hours]


def altered_rows(source: pd.DataFrame, seen: pd.DataFrame) -> list[int]:
    """Return the row numbers of `seen` whose cells differ from the source, or that the source does not contain.

    `seen` contains each row once. Two missing values are equal.
    """
    known = seen[ROW].isin(source[ROW])
    left = seen[known].set_index(ROW).sort_index()
    right = source.set_index(ROW).loc[left.index]
    differs = pd.Series(data=False, index=left.index)
    for column in COLUMNS[1:]:
        same = (left[column] == right[column]).fillna(value=False)
        differs |= ~(same.astype(bool) | (left[column].isna() & right[column].isna()))
    return [*(int(row) for row in left.index[differs]), *(int(row) for row in seen.loc[~known, ROW])]


def expected_delays(source: pd.DataFrame) -> pd.DataFrame:
    """Compute the expected delays per carrier and origin from the source, with pandas instead of Spark."""
    delay = source.assign(dep_delay=source["dep_delay"].astype("float64")).groupby(["carrier", "origin"])["dep_delay"]
    table = pd.DataFrame({"flights": delay.size(), "mean": delay.mean(), "p95": delay.quantile(0.95)})
    return table.reset_index()


def wrong_groups(expected: pd.DataFrame, actual: pd.DataFrame) -> list[str]:
    """Return the groups that differ, or that only one of the tables contains. Compare numbers with `MEAN_TOLERANCE`."""
    left, right = (by_group(table) for table in (expected, actual))
    return [group for group in sorted(left | right) if not close(left.get(group), right.get(group))]


def by_group(table: pd.DataFrame) -> dict[str, tuple[float, ...]]:
    """Return flights, mean and percentile by ``carrier-origin``."""
    columns = (table[name] for name in ("carrier", "origin", "flights", "mean", "p95"))
    return {
        f"{carrier}-{origin}": tuple(float(number) for number in numbers)
        for carrier, origin, *numbers in zip(*columns, strict=True)
    }


def close(left: tuple[float, ...] | None, right: tuple[float, ...] | None) -> bool:
    """Return True if both groups exist, and their numbers are equal up to `MEAN_TOLERANCE` or both NaN."""
    if left is None or right is None:
        return False
    return all(
        (math.isnan(a) and math.isnan(b)) or abs(a - b) <= MEAN_TOLERANCE * max(1.0, abs(a))
        for a, b in zip(left, right, strict=True)
    )


def first_findings(kind: str, items: Iterable[object]) -> tuple[str, ...]:
    return tuple(f"{kind}: {item}" for item, _ in zip(items, range(FINDINGS_SHOWN_MAX), strict=False))


def uncommitted_rows(written: Mapping[str, int], progress: Iterable[Progress]) -> int:
    """Return the number of rows in the log that a read_committed reader must not receive.

    `written` has the rows per attempt. If the result is 0, the run does not test the isolation level.
    """
    committed = committed_attempts(progress)
    return sum(rows for attempt, rows in written.items() if attempt not in committed)
