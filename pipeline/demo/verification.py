"""Judges what came out against the source data, row by row. Pure: tables in, verdict out."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from odradek.pipeline.flights.plan import Fate
from odradek.pipeline.flights.source import COLUMNS, ROW, canonical

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from odradek.pipeline.flights.progress_topic import Progress

MEAN_TOLERANCE = 1e-9
FAULTS_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of rows; all but the first two must be 0. ``faults`` shows the first few of each kind.

    lost: rows of the source that no committed attempt brought. duplicated: sightings of a row by committed attempts beyond
    its first. aborted: sightings by attempts that were not committed. altered: rows that differ from the source, or are not
    in it. wrong_groups: groups whose count, mean or percentile differ. wrong_hours: hours not committed exactly once.
    forgotten: attempts whose commit the broker had acknowledged, and that are not there. (Such an hour would be written again
    after a restart, so that no row need be lost: only its progress record tells.)
    """

    expected: int
    seen: int
    lost: int = 0
    duplicated: int = 0
    aborted: int = 0
    altered: int = 0
    wrong_groups: int = 0
    wrong_hours: int = 0
    forgotten: int = 0
    faults: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        rows = (self.lost, self.duplicated, self.aborted, self.altered)
        return self.expected > 0 and not any((*rows, self.wrong_groups, self.wrong_hours, self.forgotten))


def judge(
    source: pd.DataFrame,
    seen: pd.DataFrame,
    delays: pd.DataFrame,
    progress: Sequence[Progress],
    acknowledged: Collection[str],
) -> Verdict:
    """Compare.

    Args:
        source: the flights as they were given to the producer.
        seen: the rows that the job wrote, each with the ``attempt`` that brought it.
        delays: the job's last word on each group: carrier, origin, flights, mean, p95.
        progress: the committed progress records.
        acknowledged: the attempts whose commit the broker acknowledged.
    """
    committed = committed_attempts(progress)
    by_abort = ~seen["attempt"].isin(list(committed))
    kept = seen[~by_abort]
    repeated = kept[ROW].duplicated()
    unique = canonical(kept[~repeated])
    missing = source.loc[~source[ROW].isin(unique[ROW]), ROW]
    altered = altered_rows(source, unique)
    groups = wrong_groups(expected_delays(source), delays)
    wrong_hours = hours_not_once(progress, source["time_hour"].nunique())
    forgotten = sorted(set(acknowledged) - {record.attempt for record in progress})
    return Verdict(
        expected=len(source),
        seen=len(seen),
        lost=len(missing),
        duplicated=int(repeated.sum()),
        aborted=int(by_abort.sum()),
        altered=len(altered),
        wrong_groups=len(groups),
        wrong_hours=len(wrong_hours),
        forgotten=len(forgotten),
        faults=(
            *shown("lost row", missing),
            *shown("duplicated row", kept.loc[repeated, ROW]),
            *shown("row of an aborted attempt", seen.loc[by_abort, "attempt"]),
            *shown("altered row", altered),
            *shown("wrong group", groups),
            *shown("hour not committed exactly once", wrong_hours),
            *shown("acknowledged commit that is not there", forgotten),
        ),
    )


def committed_attempts(progress: Iterable[Progress]) -> frozenset[str]:
    """The attempts whose rows may be seen.

    An attempt that the producer wrote in order to abort it is never among them, even if a broker wrongly shows its progress
    record: what the producer decided is known without asking the broker.
    """
    return frozenset(record.attempt for record in progress if not record.attempt.endswith(f".{Fate.ABORT}"))


def hours_not_once(progress: Iterable[Progress], hours: int) -> list[int]:
    """Hours that were committed never, or more than once; and hours that do not exist."""
    times = Counter(record.hour for record in progress)
    return [hour for hour in sorted(set(range(hours)) | set(times)) if times[hour] != 1 or hour >= hours]


def altered_rows(source: pd.DataFrame, seen: pd.DataFrame) -> list[int]:
    """Rows of ``seen`` (each once) that are not cell by cell what the source says; missing equals missing."""
    known = seen[ROW].isin(source[ROW])
    left = seen[known].set_index(ROW).sort_index()
    right = source.set_index(ROW).loc[left.index]
    differs = pd.Series(data=False, index=left.index)
    for column in COLUMNS[1:]:
        same = (left[column] == right[column]).fillna(value=False)
        differs |= ~(same.astype(bool) | (left[column].isna() & right[column].isna()))
    return [*(int(row) for row in left.index[differs]), *(int(row) for row in seen.loc[~known, ROW])]


def expected_delays(source: pd.DataFrame) -> pd.DataFrame:
    """What the job must compute, from the source alone and by other code."""
    delay = source.assign(dep_delay=source["dep_delay"].astype("float64")).groupby(["carrier", "origin"])["dep_delay"]
    table = pd.DataFrame({"flights": delay.size(), "mean": delay.mean(), "p95": delay.quantile(0.95)})
    return table.reset_index()


def wrong_groups(expected: pd.DataFrame, found: pd.DataFrame) -> list[str]:
    """Groups that one side lacks or that differ; means up to the order of summation."""
    left, right = (by_group(table) for table in (expected, found))
    return [group for group in sorted(left | right) if not close(left.get(group), right.get(group))]


def by_group(table: pd.DataFrame) -> dict[str, tuple[float, ...]]:
    columns = (table[name] for name in ("carrier", "origin", "flights", "mean", "p95"))
    return {
        f"{carrier}-{origin}": tuple(float(number) for number in numbers)
        for carrier, origin, *numbers in zip(*columns, strict=True)
    }


def close(left: tuple[float, ...] | None, right: tuple[float, ...] | None) -> bool:
    if left is None or right is None:
        return False
    return all(
        (math.isnan(one) and math.isnan(other)) or abs(one - other) <= MEAN_TOLERANCE * max(1.0, abs(one))
        for one, other in zip(left, right, strict=True)
    )


def shown(what: str, items: Iterable[object]) -> tuple[str, ...]:
    return tuple(f"{what}: {item}" for item, _ in zip(items, range(FAULTS_SHOWN_MAX), strict=False))


def hidden_rows(written: Mapping[str, int], progress: Iterable[Progress]) -> int:
    """Rows in the log that no reader of committed data may see. Were it 0, seeing none of them would prove nothing."""
    committed = committed_attempts(progress)
    return sum(rows for attempt, rows in written.items() if attempt not in committed)
