"""Verify the results of a demo run, print tables, and write the plot and result.json."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from odradek.pipeline.demo import screen as show
from odradek.pipeline.demo.copies import DRIVER_KILLS
from odradek.pipeline.demo.plot import write_plot
from odradek.pipeline.demo.verification import (
    CopiesResult,
    VerificationResult,
    committed_attempts,
    uncommitted_rows,
    verify,
    verify_copies,
)
from odradek.pipeline.eos.plan import Fault
from odradek.pipeline.faults.broker_kills import longest_gap
from odradek.pipeline.flights.plan import BROKER_KILLS, KILLS
from odradek.pipeline.flights.source import load_airline_names

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    import pandas as pd
    from rich.console import Console

    from odradek.pipeline.audit import AuditResult
    from odradek.pipeline.demo.run import JobResults
    from odradek.pipeline.demo.users import Accesses
    from odradek.pipeline.eos.record import Record
    from odradek.pipeline.flights.plan import Hour
    from odradek.pipeline.flights.progress_topic import Progress
    from odradek.pipeline.producer.supervisor import Campaign

PLOT = "flights.svg"
"""Name of the picture. A PNG of the same name is beside it."""
NO_AUDIT = (
    "The logs are not audited, because the demo did not start this cluster: compaction may have removed transitions, "
    "and other producers may write. To audit them: python -m odradek.pipeline.audit --bootstrap HOST:PORT"
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Results of a run before their verification.

    Attributes:
        source: Flights that the feed of the producer contains.
        hours: Transactions of the feed.
        campaign: Record of the producer and the brokers.
        copies: Record of the driver of the exactly-once sink.
        results: Results of the Spark job.
        progress: Committed progress records.
        audits: Audit of the logs of the demo's own cluster, or nothing.
        accesses: Access of each part.
    """

    source: pd.DataFrame
    hours: Sequence[Hour]
    campaign: Campaign
    copies: Record
    results: JobResults
    progress: Sequence[Progress]
    audits: Sequence[AuditResult]
    accesses: Accesses


def missing_faults(campaign: Campaign, copies: Record, uncommitted: int) -> list[str]:
    """Return one line for each planned fault that did not happen. Without these faults, the run proves too little.

    `uncommitted` is the number of rows in the log that belong to attempts without a commit.
    """
    missing = []
    if len(campaign.kills) != KILLS:
        missing.append(f"only {len(campaign.kills)} of {KILLS} kills were carried out")
    if not any(kill.in_window for kill in campaign.kills):
        missing.append("no kill is proven to lie between EndTxn and its response")
    if campaign.broker_outages is not None:
        if len(campaign.broker_outages) != BROKER_KILLS:
            missing.append(f"only {len(campaign.broker_outages)} of {BROKER_KILLS} brokers were killed")
        last_commit = max((time_of_commit for time_of_commit, _ in campaign.commits), default=0.0)
        missing += [
            f"the {outage.kill.target} was killed when nothing was left to commit"
            for outage in campaign.broker_outages
            if outage.killed_at > last_commit
        ]
    if not uncommitted:
        missing.append("the log contains no row of an aborted transaction")
    if len(copies.times) != DRIVER_KILLS:
        missing.append(f"only {len(copies.times)} of {DRIVER_KILLS} drivers were killed")
    if not copies.faults[Fault.WORKERS]:
        missing.append("no Python worker was killed")
    return missing


def report(console: Console, options: argparse.Namespace, evidence: Evidence, started: float) -> bool:
    """Verify the results, print tables, and write the picture and result.json. Return True if the run passed."""
    results, campaign, progress = evidence.results, evidence.campaign, evidence.progress
    assert results.seen is not None
    assert results.delays is not None
    assert results.copies is not None
    verification = verify(evidence.source, results.seen, results.delays, progress, campaign.acknowledged)
    copies = verify_copies(evidence.source, results.copies, progress)
    uncommitted = uncommitted_rows(results.written, progress)
    missing = missing_faults(campaign, evidence.copies, uncommitted)
    passed = verification.passed and copies.passed and not missing and all(each.ok for each in evidence.audits)
    headline = (
        f"{verification.seen:,} of {verification.expected:,} flights in {len(evidence.hours):,} transactions: "
        f"{verification.lost:,} lost, {verification.duplicated:,} duplicated\n"
        f"{copies.rows.seen:,} copied in {copies.batches} batches: "
        f"{copies.rows.lost:,} lost, {copies.rows.duplicated:,} duplicated"
    )
    plot = options.out / PLOT
    airlines = load_airline_names()
    write_plot(plot, campaign, evidence.copies, results, headline, airlines)
    seconds = time.monotonic() - started
    content = summary(options, evidence, verification, copies, uncommitted, missing)
    content |= {"passed": passed, "seconds": round(seconds, 1)}
    (options.out / "result.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    console.print(show.delays_table(results.delays, airlines))
    console.print(show.kills_table(campaign.kills, committed_attempts(progress)))
    console.print(show.driver_kills_table(evidence.copies))
    console.print(show.result_panel(verification, copies, passed, uncommitted, missing))
    for each in evidence.audits:
        lines = ["Audit of the cluster's logs (docs/audit.md)", *each.lines()]
        console.print("\n".join(lines), highlight=False, soft_wrap=True)
    if not evidence.audits:
        console.print(NO_AUDIT, highlight=False)
    console.print(f"security {evidence.accesses.describe()}", highlight=False)
    for line in show.gap_lines(campaign):
        console.print(line, highlight=False)
    console.print(f"plot {plot}", highlight=False, soft_wrap=True)
    console.print(f"{seconds:.0f} seconds; repeat with --seed {options.seed}", highlight=False)
    return passed


def summary(
    options: argparse.Namespace,
    evidence: Evidence,
    verification: VerificationResult,
    copies: CopiesResult,
    uncommitted: int,
    missing: list[str],
) -> dict[str, Any]:
    """Return the content of result.json, without result and duration."""
    campaign, record = evidence.campaign, evidence.copies
    return {
        "seed": options.seed,
        "security": {"connections": evidence.accesses.admin.describe(), "users": evidence.accesses.users},
        **asdict(verification),
        "aborted_rows_in_log": uncommitted,
        "missing_faults": missing,
        "kills": [
            {
                "kind": kill.plan.kind,
                "last_event": kill.last_event,
                "attempt": kill.attempt,
                "in_window": kill.in_window,
            }
            for kill in campaign.kills
        ],
        "broker_kills": [
            {
                "target": outage.kill.target,
                "node_id": outage.node_id,
                "gap_seconds": round(outage.gap(campaign.commits), 3),
                "in_sync_after_seconds": round(outage.in_sync_at - outage.killed_at, 3),
            }
            for outage in campaign.broker_outages or ()
        ],
        "longest_gap_seconds": round(longest_gap(campaign.commits), 3),
        "transactions_aborted": len(campaign.aborts),
        "producer_runs": campaign.runs,
        "audits": [
            {"ok": each.ok, "proven": each.proven, "violations": list(map(str, each.violations))}
            for each in evidence.audits
        ],
        "copies": {**asdict(copies), "driver_kills": len(record.times), "faults": dict(record.faults)},
    }
