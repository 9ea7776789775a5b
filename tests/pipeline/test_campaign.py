"""The producer is killed, the job reads, the verdict judges: against a real broker, on the first flights of the year."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.cluster import lookup
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
GATES = [5, 20]
SEED = 3


class Bench:
    """A feed and topics for one campaign."""

    def __init__(self, topics: Topics, directory: Path) -> None:
        self.source: pd.DataFrame = load_flights(ROWS)
        self.hours: list[Hour] = write_feed(self.source, directory)
        self.flights, self.progress = topics.new(6, name="flights"), topics.new(name="progress")
        self.events: list[dict[str, Any]] = []
        self.delays = topics.new(name="delays")
        self.task = ProducerOptions(
            topics.bootstrap,
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
        await_stable(self.task.bootstrap, {self.flights: 6, self.progress: 1})
        return supervisor.campaign

    def supervisor(self, *kills: Kill) -> Supervisor:
        return Supervisor(self.task, kills, self.events.append)


@pytest.fixture
def bench(topics: Topics, tmp_path: Path) -> Bench:
    return Bench(topics, tmp_path)


def test_every_kill_in_the_window_leaves_a_commit_that_the_next_life_finds(bench: Bench) -> None:
    kills = [Kill(number, KillKind.WINDOW, 5 * number, delay) for number, delay in enumerate((0.0, 0.0005, 0.02), 1)]
    campaign = bench.run(*kills)
    assert campaign.runs == 4
    assert [death.in_window for death in campaign.kills] == [True, True, True]
    committed = committed_attempts(read_progress(bench.task.bootstrap, bench.progress))
    for death in campaign.kills:
        assert death.held_commit is not None
        assert death.held_commit.request.committed
        assert death.held_commit.request.transactional_id == bench.task.transactional_id
        assert death.held_commit.error == 0, "the broker finished what had been asked of it"
        assert death.attempt in committed
    assert len(committed) == len(bench.hours)
    assert set(campaign.acknowledged) == committed


def test_timed_kills_never_break_an_hour(bench: Bench) -> None:
    kills = [Kill(number, KillKind.TIMED, 2 * number, 0.001 * number) for number in range(1, 5)]
    campaign = bench.run(*kills)
    assert (campaign.runs, len(campaign.kills)) == (5, 4)
    progress = read_progress(bench.task.bootstrap, bench.progress)
    assert [record.hour for record in progress] == list(range(len(bench.hours)))
    assert set(campaign.acknowledged) <= committed_attempts(progress)
    last = last_progress(bench.task.bootstrap, bench.progress)
    assert last == progress[-1]
    resumed = [event["hour"] for event in bench.events if event["event"] == "resumed"]
    assert len(resumed) == 5
    assert resumed == sorted(resumed)


def test_the_producer_waits_at_its_gates_also_when_it_was_killed_before(bench: Bench) -> None:
    def open_at_the_gate(event: dict[str, Any]) -> None:
        bench.events.append(event)
        if event["event"] == "paused":
            supervisor.end_pause()

    kills = [Kill(1, KillKind.TIMED, 2, 0.001), Kill(2, KillKind.TIMED, GATES[0] + 1, 0.001)]
    supervisor = Supervisor(bench.task, kills, open_at_the_gate, GATES)
    assert supervisor.run()
    assert supervisor.campaign.runs == 3
    told = [(event["event"], event.get("hour")) for event in bench.events]
    assert [hour for event, hour in told if event == "paused"] == GATES, "once it is open it stays open"
    for gate in GATES:
        assert told.index(("paused", gate)) < told.index(("writing", gate))
    assert told[-1][0] == "finished"


def test_leader_and_coordinator_are_found_through_any_broker_that_responds(bench: Bench) -> None:
    bootstrap = f"127.0.0.1:1,{bench.task.bootstrap}"
    assert lookup.leader(bootstrap, bench.flights, 5) >= 0
    assert lookup.coordinator(bootstrap, "anybody") >= 0
    with pytest.raises(ConnectionError, match="has no partition 6"):
        lookup.leader(bootstrap, bench.flights, 6)
    with pytest.raises(ConnectionError, match=r"cannot connect to a broker at 127\.0\.0\.1:1"):
        lookup.coordinator("127.0.0.1:1", "anybody")


def test_a_producer_that_cannot_work_is_not_started_for_ever(bench: Bench) -> None:
    (bench.task.feed / "feed.index.json").unlink()
    with pytest.raises(ProducerFailed, match=r"feed\.index\.json"):
        bench.supervisor().run()


@pytest.mark.spark
def test_the_job_sees_what_was_committed_and_the_verdict_tells_when_it_does_not(
    spark: SparkSession, bench: Bench, tmp_path: Path
) -> None:
    campaign = bench.run(Kill(1, KillKind.TIMED, 10, 0.002))
    places = JobOptions(bench.task.bootstrap, bench.flights, bench.delays, str(tmp_path / "out"))
    outcome = JobResults()
    progress = read_progress(places.bootstrap, bench.progress)
    queries = start_job(spark, places)
    for query in queries:
        query.processAllAvailable()
    stop_queries(queries)
    read_results(spark, places, outcome)
    assert outcome.seen is not None
    assert outcome.delays is not None

    verdict = verify(bench.source, outcome.seen, outcome.delays, progress, campaign.acknowledged)
    assert verdict.passed, verdict.findings
    assert verdict.seen == ROWS
    hidden = uncommitted_rows(outcome.written, progress)
    by_hour = [hour.rows for hour in bench.hours]
    assert hidden >= sum(by_hour[hour] for hour in aborted_hours(SEED, len(by_hour)))

    careless = transforms.flights(records(spark, places, bench.flights, "read_uncommitted")).toPandas()
    verdict = verify(bench.source, careless, outcome.delays, progress, campaign.acknowledged)
    assert not verdict.passed
    assert (verdict.aborted, verdict.lost, verdict.duplicated) == (hidden, 0, 0)
    assert verdict.seen == ROWS + hidden
