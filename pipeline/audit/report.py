"""One HTML page with the result of an audit. It needs no other file and no network."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Final

from odradek.pipeline.audit.alignment import Fit
from odradek.pipeline.audit.charts import charts
from odradek.pipeline.audit.judgment import Status
from odradek.pipeline.audit.result import MARKERS
from odradek.pipeline.pictures import page as pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from odradek.pipeline.audit.result import AuditResult
    from odradek.pipeline.audit.statistics import Statistics

ROWS_MAX: Final = 200
"""Maximum rows of a table of the page. The tables in Parquet have all rows."""
LIMITS: Final = """
A decision is not decidable if compaction or retention has removed its Prepare record, its marker or the data.
The same holds if its completion is not in the log.
Time-outs and fences are not in the log: both look like an abort. The metrics of the brokers count them.
An operator's abort (WriteTxnMarkers) writes a marker without a decision.
A forged ABORT marker with the epoch of an open transaction has the same form. Compare the list with what operators did.
With TV1, all transactions of a producer have one epoch.
Data that arrives late, within the next transaction, becomes a part of it, and the log does not show that.
""".strip().splitlines()


def page(result: AuditResult, statistics: Statistics) -> str:
    """Return the page."""
    latest = datetime.fromtimestamp(max(statistics.latest_ms, 0) / 1000, UTC)
    failed = "no decision is proven" if not result.violations else f"{result.violation_count:,} violations"
    outcome = "no violation" if result.ok else failed
    parts = [
        f"<h1>Audit of transactions: <span class={'ok' if result.ok else 'violated'}>{escape(outcome)}</span></h1>",
        f"<p>{result.batches:,} batches of {result.partitions:,} partitions, up to {latest:%Y-%m-%d %H:%M:%S} UTC</p>",
        "<div class=counts>",
        *(_count(result.decisions.get(status, 0), f"decisions {status.value}") for status in Status),
        *(_count(result.markers[fit], f"markers {text}") for fit, text in MARKERS.items() if result.markers.get(fit)),
        "</div>",
    ]
    violations = [
        (each.kind.value, each.transactional_id, f"{each.producer_id}/{each.producer_epoch}",
         f"{each.topic}-{each.partition}", each.offset, each.detail)
        for each in result.violations
    ]  # fmt: skip
    parts += _table(
        "Violations", ("kind", "transactional id", "producer", "partition", "offset", "detail"), violations,
        result.violation_count,
    )  # fmt: skip
    reasons = sorted(result.reasons.items(), key=lambda each: -each[1])
    parts += _table("Not decidable", ("reason", "decisions"), reasons, len(reasons))
    aborts = [(place,) for place in result.operator_aborts]
    parts += _table("Markers as of an operator's abort", ("marker",), aborts, result.markers.get(Fit.BY_OPERATOR, 0))
    for chart in charts(statistics):
        parts.append(f"<h2>{escape(chart.title)}</h2><p>{escape(chart.text)}</p>")
        parts.append(pages.picture(chart.svg()))
    parts += _latencies(statistics)
    holders = [
        (f"{each.topic}-{each.partition}", each.last_stable_offset, each.behind, each.transactional_id,
         each.producer_id, each.state, f"{each.age_ms / 1000:,.1f} s")
        for each in statistics.holders
    ]  # fmt: skip
    parts += _table(
        "Last stable offsets and their transactions",
        ("partition", "last stable offset", "behind", "transactional id", "producer id", "state", "age"),
        holders,
        len(holders),
    )
    parts.append("<h2>Limits</h2><ul>" + "".join(f"<li>{escape(text)}</li>" for text in LIMITS) + "</ul>")
    return pages.page("Audit of transactions", parts)


def _latencies(statistics: Statistics) -> Iterator[str]:
    rows = [
        (each.prefix, "commit" if each.commit else "abort", each.decisions,
         *(f"{value:,.0f}" for value in (*each.application, *each.markers)))
        for each in statistics.latencies
    ]  # fmt: skip
    names = [f"{phase} {share}" for phase in ("application", "markers") for share in ("p50", "p95", "p99")]
    yield from _table("Latency in ms", ("prefix", "end", "decisions", *names), rows, len(rows))


def _count(number: int, text: str) -> str:
    return f"<div><b>{number:,}</b>{escape(text)}</div>"


def _table(title: str, names: Sequence[str], rows: Sequence[Iterable[str | int]], count: int) -> Iterator[str]:
    """Yield a table, or nothing if it has no rows. `count` is the number of all rows."""
    if not rows:
        return
    yield f"<h2>{escape(title)}</h2>"
    shown = rows[:ROWS_MAX]
    if count > len(shown):
        yield f"<p>{len(shown):,} of {count:,}</p>"
    yield from pages.table(names, shown)
