"""Table at the end of a campaign, for lines of 80 columns."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from odradek.pipeline.eos.plan import KILLS, Mode
from odradek.pipeline.eos.record import durations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.pipeline.eos.campaign import Result, Settings

WIDTH: Final = 80
"""Columns per line."""
LABEL_WIDTH: Final = 54


def passed(settings: Settings, result: Result) -> bool:
    """Return True if all faults were carried out, and each row is visible once. Mode stock permits duplicates."""
    return not result.missing and _as_expected(settings, result)


def _as_expected(settings: Settings, result: Result) -> bool:
    judgment = result.judgment
    return judgment.at_least_once if settings.mode is Mode.STOCK else judgment.exactly_once


def lines(settings: Settings, result: Result) -> list[str]:
    """Return the lines of the report."""
    record, judgment = result.record, result.judgment
    kills = sum(record.ends[end] for end in KILLS)
    table: dict[str, object] = {
        "runs of the driver": result.runs,
        "driver kills (SIGKILL)": kills,
        **{f"  {end}": count for end, count in sorted(record.ends.items())},
        **{f"  {fault}": count for fault, count in sorted(record.faults.items())},
    }
    steps = ", ".join(f"{step} {record.step_kills[step]}" for step in settings.steps)
    return [
        "=" * WIDTH,
        f"mode {settings.mode}, seed {settings.seed}",
        *_table(table),
        f"kills after steps: {steps}",
        "-" * WIDTH,
        *_table(_visible(result)),
        *([] if settings.mode is Mode.STOCK else _table(_samples(settings, result))),
        "-" * WIDTH,
        *_costs(settings, result),
        *(f"FINDING {text}" for text in judgment.findings),
        *(f"MISSING {text}" for text in result.missing),
        _conclusion(settings, result),
    ]


def _visible(result: Result) -> Mapping[str, object]:
    judgment = result.judgment
    return {
        "rows of the input": judgment.expected,
        "rows of aborted transactions in the input": result.aborted_rows,
        "batches": judgment.batches,
        "batches that a run repeated": _repeated(result),
        "batches with a second attempt in one run": result.record.repeated_attempts,
        "rows visible in the output": judgment.visible,
        "rows lost": judgment.lost,
        "rows duplicated": judgment.duplicated,
        "rows that are not in the input": judgment.foreign,
        "batches with rows of several runs": judgment.mixed,
    }


def _repeated(result: Result) -> int:
    runs = Counter(times.batch for times in result.record.batches)
    return sum(count > 1 for count in runs.values())


def _samples(settings: Settings, result: Result) -> Mapping[str, object]:
    judgment, visibility = result.judgment, result.visibility
    final = Counter(row.batch for row in visibility.rows)
    return {
        "samples of ledger and data": visibility.samples,
        "samples repeated because a broker was down": result.failed_samples,
        "batches judged in a sample": len(visibility.whole),
        "batches visible in part after their markers": judgment.split,
        "samples between decision and last marker": visibility.windows(final),
        "visible rows without a decision in the ledger": judgment.undecided,
        "rows that vanished": judgment.vanished,
    }


def _costs(settings: Settings, result: Result) -> list[str]:
    """Return the durations of batches without faults."""
    batches = result.record.undisturbed()
    first = settings.steps[0]
    parts: list[tuple[str, str, str | None]] = [(f"whole batch ({first} to its end)", first, None)]
    parts += [(f"  {a} to {b}", a, b) for a, b in zip(settings.steps, settings.steps[1:], strict=False)]
    shown = [f"milliseconds of {len(batches)} batches without faults: median, 95th percentile"]
    for label, begin, end in parts:
        median, high = durations(batches, begin, end)
        shown.append(f"  {label:<{LABEL_WIDTH}}{median * 1e3:>9.0f} {high * 1e3:>9.0f}")
    return shown


def _table(rows: Mapping[str, object]) -> list[str]:
    return [f"{label:<{LABEL_WIDTH}} {count:>9}" for label, count in rows.items()]


def _conclusion(settings: Settings, result: Result) -> str:
    judgment = result.judgment
    if result.missing:
        return "FAILED: the campaign did not carry out its plan"
    counts = f"{judgment.lost} lost, {judgment.duplicated} duplicated"
    is_stock = settings.mode is Mode.STOCK
    conclusion = "RAN" if is_stock else "PASSED"
    if not _as_expected(settings, result):
        conclusion = "FAILED"
    elif settings.is_partial:
        conclusion = f"PARTIAL, {len(settings.plan)} planned runs"
    if is_stock:
        return f"{conclusion}: Spark's own sink, {counts}: duplicates are expected"
    return f"{conclusion}: {counts}, {judgment.split} split"
