"""The demo from start to verdict: what `odradek.pipeline.demo.__main__` does once its options are read."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from odradek.pipeline.cluster.own_cluster import BROKERS, OwnCluster, create_topics, delete_topics
from odradek.pipeline.demo import screen as show
from odradek.pipeline.demo.plot import draw
from odradek.pipeline.demo.run import Outcome, QueryFailed, run
from odradek.pipeline.demo.screen import Screen
from odradek.pipeline.demo.verification import Verdict, committed_attempts, hidden_rows, judge
from odradek.pipeline.faults.broker_kills import Breaker, longest_gap
from odradek.pipeline.flights.feed import write_feed
from odradek.pipeline.flights.plan import BROKER_KILLS, HOURS_MIN, KILLS, broker_gates, draw_broker_kills, draw_kills
from odradek.pipeline.flights.progress_topic import read_progress
from odradek.pipeline.flights.source import load_airline_names, load_flights
from odradek.pipeline.producer.supervisor import Campaign, ProducerFailed, Supervisor, Task, committed_hour
from odradek.pipeline.spark.delays_job import Places

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd
    from rich.console import Console

    from odradek.pipeline.flights.plan import BrokerKill, Hour, Kill
    from odradek.pipeline.flights.progress_topic import Progress

FLIGHT_PARTITIONS = 6
OWN_FILES = ("rows", "checkpoints", "feed.jsonl", "feed.index.json", "cluster")
LOGS = ("producer.log", "spark.log", "cluster.log")
RESULTS = ("verdict.json", "flights.png")


Failed = (ProducerFailed, QueryFailed, RuntimeError, KafkaException, OSError)
"""What may go wrong outside this program; anything else is a bug and keeps its traceback."""


def demo(options: argparse.Namespace, console: Console) -> int:
    """Prepare, run, judge, report."""
    started = time.monotonic()
    out: Path = options.out
    clear(out)
    with console.status("reading the flights"):
        source = load_flights(options.rows)
        hours = write_feed(source, out)
    if len(hours) < HOURS_MIN:
        raise RuntimeError(f"{options.rows} rows make {len(hours)} transactions: at least {HOURS_MIN} are needed")
    kills = draw_kills(options.seed, len(hours))
    console.print(f"{len(source):,} flights, {len(hours):,} transactions, seed {options.seed}", highlight=False)
    with ExitStack() as undo:
        bootstrap, cluster = options.bootstrap, None
        if bootstrap is None:
            with console.status(f"starting {BROKERS} brokers"):
                cluster = OwnCluster(out / "cluster", out / "cluster.log")
            undo.callback(cluster.stop)
            bootstrap = cluster.bootstrap
        console.print(f"brokers {bootstrap}, Spark {options.master}, results in {out}", highlight=False)
        run_name = f"{options.seed}-{int(time.time())}"
        topics = {f"flights-{run_name}": FLIGHT_PARTITIONS, f"progress-{run_name}": 1, f"delays-{run_name}": 1}
        create_topics(bootstrap, topics)
        if options.bootstrap is not None:
            undo.callback(delete_topics, bootstrap, list(topics))
        flights_topic, progress_topic, delays_topic = topics
        places = Places(bootstrap, flights_topic, delays_topic, str(out))
        task = Task(bootstrap, out, flights_topic, progress_topic, run_name, options.seed, out / "producer.log")
        broker_kills = draw_broker_kills(options.seed, len(hours), FLIGHT_PARTITIONS) if cluster is not None else ()
        with Screen(console, len(hours), len(source), len(kills), len(broker_kills)) as screen:
            breaker = None
            if cluster is not None:
                breaker = Breaker(cluster, broker_kills, flights_topic, run_name, screen.broker_event)
            supervisor = supervise(task, kills, screen, breaker, broker_kills, len(hours))
            outcome = run(supervisor, breaker, places, topics, options.master, out / "spark.log", screen)
        campaign = supervisor.campaign
        campaign.broker_deaths = breaker.deaths if breaker is not None else None
        with console.status("judging"):
            progress = read_progress(bootstrap, progress_topic)
            passed = report(console, options, source, hours, campaign, outcome, progress, started)
    return 0 if passed else 1


def supervise(
    task: Task,
    kills: Sequence[Kill],
    screen: Screen,
    breaker: Breaker | None,
    broker_kills: Sequence[BrokerKill],
    hours: int,
) -> Supervisor:
    """The producer's supervisor; what it commits moves the breaker on. Its gates stand before and after the last of a broker's kills."""

    def on_event(event: dict[str, Any]) -> None:
        screen.producer_event(event)
        if breaker is not None:
            breaker.committed(committed_hour(event))

    return Supervisor(task, kills, on_event, broker_gates(broker_kills, hours))


def clear(out: Path) -> None:
    """Remove what an earlier run left there, and nothing else."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (*OWN_FILES, *LOGS, *RESULTS):
        path = out / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def weaknesses(campaign: Campaign, hidden: int) -> list[str]:
    """Why a clean count would prove too little."""
    found = []
    if len(campaign.deaths) != KILLS:
        found.append(f"only {len(campaign.deaths)} of {KILLS} kills were carried out")
    if not any(death.in_window for death in campaign.deaths):
        found.append("no kill is proven to lie between EndTxn and its answer")
    if campaign.broker_deaths is not None:
        if len(campaign.broker_deaths) != BROKER_KILLS:
            found.append(f"only {len(campaign.broker_deaths)} of {BROKER_KILLS} brokers were killed")
        last = max((at for at, _ in campaign.commits), default=0.0)
        found += [
            f"the {death.kill.target} was killed when nothing was left to commit"
            for death in campaign.broker_deaths
            if death.at > last
        ]
    if not hidden:
        found.append("no row of an aborted transaction lies in the log")
    return found


def report(
    console: Console,
    options: argparse.Namespace,
    source: pd.DataFrame,
    hours: Sequence[Hour],
    campaign: Campaign,
    outcome: Outcome,
    progress: Sequence[Progress],
    started: float,
) -> bool:
    """Tables, picture and verdict.json. True when all is well."""
    assert outcome.seen is not None
    assert outcome.delays is not None
    verdict = judge(source, outcome.seen, outcome.delays, progress, campaign.acknowledged)
    hidden = hidden_rows(outcome.written, progress)
    weak = weaknesses(campaign, hidden)
    passed = verdict.passed and not weak
    headline = (
        f"{verdict.seen:,} of {verdict.expected:,} flights in {len(hours):,} transactions: {verdict.lost:,} lost, "
        f"{verdict.duplicated:,} duplicated, {verdict.aborted:,} of {hidden:,} aborted rows seen"
    )
    picture = options.out / "flights.png"
    draw(picture, campaign, outcome.batches, outcome.delays, campaign.began, headline)
    seconds = time.monotonic() - started
    (options.out / "verdict.json").write_text(
        json.dumps(summary(options, verdict, passed, hidden, weak, campaign, seconds), indent=2) + "\n",
        encoding="utf-8",
    )
    console.print(show.delays_table(outcome.delays, load_airline_names()))
    console.print(show.kills_table(campaign.deaths, committed_attempts(progress)))
    console.print(show.verdict_panel(verdict, passed, hidden, weak))
    for line in show.gap_lines(campaign):
        console.print(line, highlight=False)
    console.print(f"picture {picture}\n{seconds:.0f} seconds; repeat with --seed {options.seed}", highlight=False)
    return passed


def summary(
    options: argparse.Namespace,
    verdict: Verdict,
    passed: bool,
    hidden: int,
    weak: list[str],
    campaign: Campaign,
    seconds: float,
) -> dict[str, Any]:
    return {
        "passed": passed,
        "seed": options.seed,
        **asdict(verdict),
        "aborted_rows_in_log": hidden,
        "weaknesses": weak,
        "kills": [
            {"kind": death.kill.kind, "doing": death.doing, "attempt": death.attempt, "in_window": death.in_window}
            for death in campaign.deaths
        ],
        "broker_kills": [
            {
                "target": death.kill.target,
                "node_id": death.node_id,
                "gap_seconds": round(death.gap(campaign.commits), 3),
                "in_sync_after_seconds": round(death.back_at - death.at, 3),
            }
            for death in campaign.broker_deaths or ()
        ],
        "longest_gap_seconds": round(longest_gap(campaign.commits), 3),
        "transactions_aborted": len(campaign.aborts),
        "producer_lives": campaign.lives,
        "seconds": round(seconds, 1),
    }
