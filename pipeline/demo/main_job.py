"""Run the demo with parsed options: prepare the data, run producer and job, verify, and print the report."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from odradek.pipeline.cluster.demo_cluster import BROKERS, DemoCluster
from odradek.pipeline.cluster.topics import create_topics, delete_topics
from odradek.pipeline.demo import screen as show
from odradek.pipeline.demo.plot import write_plot
from odradek.pipeline.demo.run import JobResults, QueryFailed, run
from odradek.pipeline.demo.screen import Screen
from odradek.pipeline.demo.verification import VerificationResult, committed_attempts, uncommitted_rows, verify
from odradek.pipeline.faults.broker_kills import BrokerKiller, longest_gap
from odradek.pipeline.flights.feed import write_feed
from odradek.pipeline.flights.plan import (
    BROKER_KILLS,
    HOURS_MIN,
    KILLS,
    generate_broker_kills,
    generate_kills,
    pause_hours,
)
from odradek.pipeline.flights.progress_topic import read_progress
from odradek.pipeline.flights.source import load_airline_names, load_flights
from odradek.pipeline.producer.supervisor import (
    Campaign,
    ProducerFailed,
    ProducerOptions,
    Supervisor,
    committed_hour,
)
from odradek.pipeline.spark.delays_job import JobOptions

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd
    from rich.console import Console

    from odradek.pipeline.flights.plan import BrokerKill, Hour, Kill
    from odradek.pipeline.flights.progress_topic import Progress

FLIGHT_PARTITIONS = 6
"""Partitions of the flights topic."""
WORK_FILES = ("rows", "checkpoints", "feed.jsonl", "feed.index.json", "cluster")
LOGS = ("producer.log", "spark.log", "cluster.log")
RESULTS = ("result.json", "flights.png")


EXPECTED_ERRORS = (ProducerFailed, QueryFailed, RuntimeError, KafkaException, OSError)
"""Errors that causes outside this program can raise. They are printed without a traceback; others are defects."""


def demo(options: argparse.Namespace, console: Console) -> int:
    """Run the demo. Return the exit code: 0 if the verification passed, otherwise 1. Raise one of `EXPECTED_ERRORS`."""
    started = time.monotonic()
    out: Path = options.out
    clear(out)
    with console.status("reading the flights"):
        source = load_flights(options.rows)
        hours = write_feed(source, out)
    if len(hours) < HOURS_MIN:
        raise RuntimeError(
            f"{options.rows} rows make {len(hours)} transactions, the minimum is {HOURS_MIN}: use a larger --rows"
        )
    kills = generate_kills(options.seed, len(hours))
    console.print(f"{len(source):,} flights, {len(hours):,} transactions, seed {options.seed}", highlight=False)
    with ExitStack() as cleanup:
        bootstrap, cluster = options.bootstrap, None
        if bootstrap is None:
            with console.status(f"starting {BROKERS} brokers"):
                cluster = DemoCluster(out / "cluster", out / "cluster.log")
            cleanup.callback(cluster.stop)
            bootstrap = cluster.bootstrap
        console.print(f"brokers {bootstrap}, Spark {options.master}, results in {out}", highlight=False)
        run_name = f"{options.seed}-{int(time.time())}"
        topics = {f"flights-{run_name}": FLIGHT_PARTITIONS, f"progress-{run_name}": 1, f"delays-{run_name}": 1}
        create_topics(bootstrap, topics)
        if options.bootstrap is not None:
            cleanup.callback(delete_topics, bootstrap, list(topics))
        flights_topic, progress_topic, delays_topic = topics
        job = JobOptions(bootstrap, flights_topic, delays_topic, str(out))
        producer = ProducerOptions(
            bootstrap, out, flights_topic, progress_topic, run_name, options.seed, out / "producer.log"
        )
        broker_kills = generate_broker_kills(options.seed, len(hours), FLIGHT_PARTITIONS) if cluster is not None else ()
        with Screen(console, len(hours), len(source), len(kills), len(broker_kills)) as screen:
            broker_killer = None
            if cluster is not None:
                broker_killer = BrokerKiller(cluster, broker_kills, flights_topic, run_name, screen.broker_event)
            supervisor = make_supervisor(producer, kills, screen, broker_killer, broker_kills, len(hours))
            results = run(supervisor, broker_killer, job, topics, options.master, out / "spark.log", screen)
        campaign = supervisor.campaign
        campaign.broker_outages = broker_killer.outages if broker_killer is not None else None
        with console.status("verifying"):
            progress = read_progress(bootstrap, progress_topic)
            passed = report(console, options, source, hours, campaign, results, progress, started)
    return 0 if passed else 1


def make_supervisor(
    producer: ProducerOptions,
    kills: Sequence[Kill],
    screen: Screen,
    broker_killer: BrokerKiller | None,
    broker_kills: Sequence[BrokerKill],
    hours: int,
) -> Supervisor:
    """Return the supervisor of the producer. It reports the producer's commits to `screen` and `broker_killer`."""

    def on_event(event: dict[str, Any]) -> None:
        screen.producer_event(event)
        if broker_killer is not None:
            broker_killer.committed(committed_hour(event))

    return Supervisor(producer, kills, on_event, pause_hours(broker_kills, hours))


def clear(out: Path) -> None:
    """Remove the files of an earlier run from the output directory, and keep all other files."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (*WORK_FILES, *LOGS, *RESULTS):
        path = out / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def missing_faults(campaign: Campaign, uncommitted: int) -> list[str]:
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
    return missing


def report(
    console: Console,
    options: argparse.Namespace,
    source: pd.DataFrame,
    hours: Sequence[Hour],
    campaign: Campaign,
    results: JobResults,
    progress: Sequence[Progress],
    started: float,
) -> bool:
    """Verify the results, print tables, and write flights.png and result.json. Return True if the run passed."""
    assert results.seen is not None
    assert results.delays is not None
    verification = verify(source, results.seen, results.delays, progress, campaign.acknowledged)
    uncommitted = uncommitted_rows(results.written, progress)
    missing = missing_faults(campaign, uncommitted)
    passed = verification.passed and not missing
    headline = (
        f"{verification.seen:,} of {verification.expected:,} flights in {len(hours):,} transactions: "
        f"{verification.lost:,} lost, {verification.duplicated:,} duplicated, "
        f"{verification.aborted:,} of {uncommitted:,} aborted rows seen"
    )
    plot = options.out / "flights.png"
    write_plot(plot, campaign, results.batches, results.delays, campaign.began, headline)
    seconds = time.monotonic() - started
    (options.out / "result.json").write_text(
        json.dumps(summary(options, verification, passed, uncommitted, missing, campaign, seconds), indent=2) + "\n",
        encoding="utf-8",
    )
    console.print(show.delays_table(results.delays, load_airline_names()))
    console.print(show.kills_table(campaign.kills, committed_attempts(progress)))
    console.print(show.result_panel(verification, passed, uncommitted, missing))
    for line in show.gap_lines(campaign):
        console.print(line, highlight=False)
    console.print(f"plot {plot}\n{seconds:.0f} seconds; repeat with --seed {options.seed}", highlight=False)
    return passed


def summary(
    options: argparse.Namespace,
    verification: VerificationResult,
    passed: bool,
    uncommitted: int,
    missing: list[str],
    campaign: Campaign,
    seconds: float,
) -> dict[str, Any]:
    """Return the content of result.json."""
    return {
        "passed": passed,
        "seed": options.seed,
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
        "seconds": round(seconds, 1),
    }
