"""Campaigns with the first flights of the year on a real broker: producer kills, lookups, Spark job, verification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.cluster import lookup
from odradek.pipeline.cluster.access import Access
from odradek.pipeline.demo.run import JobResults, read_results, stop_queries
from odradek.pipeline.demo.verification import committed_attempts, uncommitted_rows, verify
from odradek.pipeline.flights.feed import write_feed
from odradek.pipeline.flights.plan import Kill, KillKind, aborted_hours
from odradek.pipeline.flights.progress_topic import await_stable, last_progress, read_progress
from odradek.pipeline.flights.source import load_flights
from odradek.pipeline.producer.supervisor import ProducerFailed, ProducerOptions, Supervisor
from odradek.pipeline.spark import transforms
from odradek.pipeline.spark.delays_job import JobOptions, records, start_job

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from pyspark.sql import SparkSession

    from odradek.pipeline.flights.plan import Hour
    from odradek.pipeline.producer.supervisor import Campaign
    from tests.support.topics import Topics

ROWS = 1500
PAUSES = [5, 20]
"""Hours before which the producer pauses."""
SEED = 3


class CampaignSetup:
    """Feed, topics and producer options of one campaign."""

    def __init__(self, topics: Topics, directory: Path) -> None:
        self.source: pd.DataFrame = load_flights(ROWS)
        self.hours: list[Hour] = write_feed(self.source, directory)
        self.flights, self.progress = topics.new(6, name="flights"), topics.new(name="progress")
        self.events: list[dict[str, Any]] = []
        self.delays = topics.new(name="delays")
        self.options = ProducerOptions(
            topics.access,
            directory,
            self.flights,
            self.progress,
            topics.unique("id"),
            SEED,
            directory / "producer.log",
        )

    def run(self, *kills: Kill) -> Campaign:
        supervisor = self.supervisor(*kills)
        assert supervisor.run()
        await_stable(self.options.access, {self.flights: 6, self.progress: 1})
        return supervisor.campaign

    def supervisor(self, *kills: Kill) -> Supervisor:
        return Supervisor(self.options, kills, self.events.append)


@pytest.fixture
def setup(topics: Topics, tmp_path: Path) -> CampaignSetup:
    return CampaignSetup(topics, tmp_path)


def test_commit_is_found_by_next_run_after_each_kill_in_the_window(setup: CampaignSetup) -> None:
    kills = [Kill(number, KillKind.WINDOW, 5 * number, delay) for number, delay in enumerate((0.0, 0.0005, 0.02), 1)]
    campaign = setup.run(*kills)
    assert campaign.runs == 4
    assert [kill.in_window for kill in campaign.kills] == [True, True, True]
    committed = committed_attempts(read_progress(setup.options.access, setup.progress))
    for kill in campaign.kills:
        assert kill.held_commit is not None
        assert kill.held_commit.request.committed
        assert kill.held_commit.request.transactional_id == setup.options.transactional_id
        assert kill.held_commit.error == 0, "the broker completes the commit of a killed producer"
        assert kill.attempt in committed
    assert len(committed) == len(setup.hours)
    assert set(campaign.acknowledged) == committed


def test_timed_kills_leave_each_hour_committed_exactly_once(setup: CampaignSetup) -> None:
    kills = [Kill(number, KillKind.TIMED, 2 * number, 0.001 * number) for number in range(1, 5)]
    campaign = setup.run(*kills)
    assert (campaign.runs, len(campaign.kills)) == (5, 4)
    progress = read_progress(setup.options.access, setup.progress)
    assert [record.hour for record in progress] == list(range(len(setup.hours)))
    assert set(campaign.acknowledged) <= committed_attempts(progress)
    last = last_progress(setup.options.access, setup.progress)
    assert last == progress[-1]
    resumed = [event["hour"] for event in setup.events if event["event"] == "resumed"]
    assert len(resumed) == 5
    assert resumed == sorted(resumed)


def test_producer_pauses_once_per_pause_hour_even_after_kills(setup: CampaignSetup) -> None:
    def end_pause_immediately(event: dict[str, Any]) -> None:
        setup.events.append(event)
        if event["event"] == "paused":
            supervisor.end_pause()

    kills = [Kill(1, KillKind.TIMED, 2, 0.001), Kill(2, KillKind.TIMED, PAUSES[0] + 1, 0.001)]
    supervisor = Supervisor(setup.options, kills, end_pause_immediately, PAUSES)
    assert supervisor.run()
    assert supervisor.campaign.runs == 3
    steps = [(event["event"], event.get("hour")) for event in setup.events]
    assert [hour for event, hour in steps if event == "paused"] == PAUSES, (
        "a pause that has ended is not repeated after a restart"
    )
    for hour in PAUSES:
        assert steps.index(("paused", hour)) < steps.index(("writing", hour))
    assert steps[-1][0] == "finished"


def test_lookup_of_leader_and_coordinator_uses_any_broker_that_responds(setup: CampaignSetup) -> None:
    access = Access(f"127.0.0.1:1,{setup.options.access.bootstrap}")
    assert lookup.leader(access, setup.flights, 5) >= 0
    assert lookup.coordinator(access, "any-id") >= 0
    with pytest.raises(ConnectionError, match="has no partition 6"):
        lookup.leader(access, setup.flights, 6)
    with pytest.raises(ConnectionError, match=r"cannot connect to a broker at 127\.0\.0\.1:1"):
        lookup.coordinator(Access("127.0.0.1:1"), "any-id")


def test_producer_that_fails_without_a_kill_is_not_restarted(setup: CampaignSetup) -> None:
    (setup.options.feed / "feed.index.json").unlink()
    with pytest.raises(ProducerFailed, match=r"feed\.index\.json"):
        setup.supervisor().run()


@pytest.mark.spark
def test_job_reads_committed_rows_and_verification_detects_aborted_rows(
    spark: SparkSession, setup: CampaignSetup, tmp_path: Path
) -> None:
    campaign = setup.run(Kill(1, KillKind.TIMED, 10, 0.002))
    job = JobOptions(setup.options.access, setup.flights, setup.delays, str(tmp_path / "out"))
    results = JobResults()
    progress = read_progress(job.access, setup.progress)
    queries = start_job(spark, job)
    for query in queries:
        query.processAllAvailable()
    stop_queries(queries)
    read_results(spark, job, results)
    assert results.seen is not None
    assert results.delays is not None

    verification = verify(setup.source, results.seen, results.delays, progress, campaign.acknowledged)
    assert verification.passed, verification.findings
    assert verification.seen == ROWS
    uncommitted = uncommitted_rows(results.written, progress)
    rows_by_hour = [hour.rows for hour in setup.hours]
    assert uncommitted >= sum(rows_by_hour[hour] for hour in aborted_hours(SEED, len(rows_by_hour)))

    all_rows = transforms.flights(records(spark, job, setup.flights, "read_uncommitted")).toPandas()
    verification = verify(setup.source, all_rows, results.delays, progress, campaign.acknowledged)
    assert not verification.passed
    assert (verification.aborted, verification.lost, verification.duplicated) == (uncommitted, 0, 0)
    assert verification.seen == ROWS + uncommitted
