"""Run the demo with parsed options: prepare the data, run producer and job, verify, and print the report."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from odradek.client import ClientError
from odradek.pipeline.audit import AuditResult, RunningCluster, audit, keep_transitions
from odradek.pipeline.cluster.access import Access
from odradek.pipeline.cluster.demo_cluster import BROKERS, DemoCluster
from odradek.pipeline.cluster.topics import create_topics, delete_topics
from odradek.pipeline.demo.copies import DRIVER_KILLS, Copier, CopyOptions
from odradek.pipeline.demo.report import PLOT, Evidence, report
from odradek.pipeline.demo.run import DemoRun, Parts, QueryFailed
from odradek.pipeline.demo.screen import Screen
from odradek.pipeline.demo.users import Accesses, DemoUsers, Names
from odradek.pipeline.eos.driver_process import DriverFailed
from odradek.pipeline.faults.broker_kills import BrokerKiller
from odradek.pipeline.flights.feed import write_feed
from odradek.pipeline.flights.plan import (
    HOURS_MIN,
    generate_broker_kills,
    generate_kills,
    pause_hours,
)
from odradek.pipeline.flights.progress_topic import read_progress
from odradek.pipeline.flights.source import load_flights
from odradek.pipeline.producer.supervisor import (
    ProducerFailed,
    ProducerOptions,
    Supervisor,
    committed_hour,
)
from odradek.pipeline.spark.delays_job import JobOptions
from odradek.spark.options import sink_options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from rich.console import Console

    from odradek.pipeline.flights.plan import BrokerKill, Kill

FLIGHT_PARTITIONS = 4
"""Partitions of the flights topic."""
COPY_PARTITIONS = 4
"""Partitions of the topic with the copies of the exactly-once sink."""
WORK_FILES = ("rows", "checkpoints", "copies", "audit", "feed.jsonl", "feed.index.json", "cluster")
LOGS = ("producer.log", "spark.log", "copies/spark.log", "cluster.log")
RESULTS = ("result.json", PLOT, "flights.png")


EXPECTED_ERRORS = (ProducerFailed, DriverFailed, QueryFailed, RuntimeError, KafkaException, ClientError, OSError)
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
        access, cluster = Access.of_file(options.bootstrap or "", options.command_config), None
        if options.bootstrap is None:
            with console.status(f"starting {BROKERS} brokers"):
                cluster = DemoCluster(out / "cluster", out / "cluster.log", secure=options.secure)
            cleanup.callback(cluster.stop)
            access = cluster.access
            keep_transitions(access)
        console.print(f"brokers {access.bootstrap}, Spark {options.master}", highlight=False)
        console.print(f"results in {out}", highlight=False, soft_wrap=True)
        run_name = f"{options.seed}-{int(time.time())}"
        topics = {
            f"flights-{run_name}": FLIGHT_PARTITIONS,
            f"progress-{run_name}": 1,
            f"delays-{run_name}": 1,
            f"copies-{run_name}": COPY_PARTITIONS,
        }
        flights_topic, progress_topic, delays_topic, copies_topic = topics
        accesses = Accesses.of_one(access)
        if options.secure:
            accesses = add_users(access, run_name, topics, cleanup, is_temporary=cluster is None)
        console.print(f"security {accesses.describe()}", highlight=False)
        create_topics(access, topics)
        if cluster is None:
            cleanup.callback(delete_topics, access, list(topics))
        job = JobOptions(accesses.spark, flights_topic, delays_topic, str(out))
        producer = ProducerOptions(
            accesses.producer, out, flights_topic, progress_topic, run_name, options.seed, out / "producer.log"
        )
        broker_kills = generate_broker_kills(options.seed, len(hours), FLIGHT_PARTITIONS) if cluster is not None else ()
        copies = CopyOptions(accesses.spark, flights_topic, copies_topic, len(source), options.seed, out / "copies")
        with Screen(console, len(hours), len(source), len(kills), DRIVER_KILLS, len(broker_kills)) as screen:
            copier = Copier(copies, screen.copier_event)
            broker_killer = None
            if cluster is not None:
                broker_killer = BrokerKiller(cluster, broker_kills, flights_topic, run_name, screen.broker_event)
            supervisor = make_supervisor(producer, kills, screen, broker_killer, broker_kills, len(hours))
            audits: list[AuditResult] = []

            def finish(spark: SparkSession) -> None:
                if cluster is not None:
                    source = RunningCluster(access.bootstrap, accesses.auditor.settings())
                    audits.append(audit(spark, source, out=out / "audit"))

            log = out / "spark.log"
            parts = Parts(
                supervisor, broker_killer, copier, job, topics, accesses.auditor, options.master, log, screen, finish
            )
            results = DemoRun(parts).run()
        campaign = supervisor.campaign
        campaign.broker_outages = broker_killer.outages if broker_killer is not None else None
        with console.status("verifying"):
            progress = read_progress(accesses.auditor, progress_topic)
            evidence = Evidence(source, hours, campaign, copier.record, results, progress, audits, accesses)
            passed = report(console, options, evidence, started)
    return 0 if passed else 1


def add_users(
    admin: Access, run_name: str, topics: Mapping[str, int], cleanup: ExitStack, *, is_temporary: bool
) -> Accesses:
    """Add the users of a run, and return their accesses. With `is_temporary`, `cleanup` removes the users."""
    flights, progress, delays, copies = topics
    sink = sink_options({"kafka.bootstrap.servers": admin.bootstrap, "sink": copies, "topic": copies})
    names = Names(flights, progress, delays, copies, run_name, sink.transactional_id)
    users = DemoUsers(admin, run_name, names)
    if is_temporary:
        cleanup.callback(users.remove)
    users.add()
    return users.accesses


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
