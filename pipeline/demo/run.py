"""One run: the producer and its supervisor in one thread, Spark in another process, both at once, until all is read."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from odradek.pipeline.flights.progress_topic import await_stable
from odradek.pipeline.spark import transforms
from odradek.pipeline.spark.delays_job import records, start_job
from odradek.pipeline.spark.session import kill_session, start_session, stop_session

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

    from odradek.pipeline.demo.screen import Screen
    from odradek.pipeline.faults.broker_kills import Breaker
    from odradek.pipeline.producer.supervisor import Supervisor
    from odradek.pipeline.spark.delays_job import Places

STOP_SECONDS_MAX = 10.0
KILL_INTERVAL_SECONDS = 0.2


class QueryFailed(RuntimeError):
    """A streaming query ended by itself."""


@dataclass(slots=True)
class Outcome:
    """What the run left behind. ``batches``: (time.monotonic, rows) of the query that writes the rows.

    ``written`` counts the rows of every attempt that ever reached the log, aborted ones included.
    """

    batches: list[tuple[float, int]] = field(default_factory=list)
    seen: pd.DataFrame | None = None
    delays: pd.DataFrame | None = None
    written: dict[str, int] = field(default_factory=dict)


Signal = tuple[str, BaseException | None]
Topics = Mapping[str, int]


class Listener(StreamingQueryListener):
    """Passes on what the queries do; called in a thread of Spark's."""

    def __init__(self, outcome: Outcome, screen: Screen, signals: queue.SimpleQueue[Signal]) -> None:
        super().__init__()
        self._outcome = outcome
        self._screen = screen
        self._signals = signals

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if progress.name == "rows" and progress.numInputRows:
            self._outcome.batches.append((time.monotonic(), progress.numInputRows))
        self._screen.batch(str(progress.name), progress.numInputRows)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if event.exception is not None:
            self._signals.put(("query", QueryFailed(event.exception)))


def run(
    supervisor: Supervisor,
    breaker: Breaker | None,
    places: Places,
    topics: Topics,
    master: str,
    console: Path,
    screen: Screen,
) -> Outcome:
    """Write, read and gather, while brokers die. Raises ProducerFailed, QueryFailed, and what Spark and the client raise.

    This thread only waits, so that an interrupt never falls into a half-finished call of Spark's.
    """
    outcome = Outcome()
    signals: queue.SimpleQueue[Signal] = queue.SimpleQueue()
    started, produced = threading.Event(), threading.Event()

    def produce() -> None:
        started.wait()  # so that Spark reads while the producer writes and is killed, however short the run
        if not supervisor.run():
            return
        # A commit is answered when it is decided; a moment later its markers are in the log and readers see it.
        await_stable(places.bootstrap, topics)
        produced.set()

    def read() -> None:
        spark = start_session("flight delays", master, console=console)
        spark.streams.addListener(Listener(outcome, screen, signals))
        queries = start_job(spark, places)
        started.set()
        produced.wait()
        for query in queries:
            query.processAllAvailable()
        stop_queries(queries)
        gather(spark, places, outcome)
        stop_session(spark)

    def kill_brokers() -> None:
        if breaker is not None:
            breaker.run(supervisor.open_gate)

    producing, reading = in_thread("produce", produce, signals), in_thread("read", read, signals)
    breaking = in_thread("break", kill_brokers, signals)
    try:
        await_signals(signals, {"produce", "read", "break"})
    finally:
        supervisor.stop()
        if breaker is not None:
            breaker.stop()
        for event in (started, produced):
            event.set()
        producing.join(STOP_SECONDS_MAX)
        breaking.join(STOP_SECONDS_MAX)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while reading.is_alive() and time.monotonic() < deadline:
            kill_session()  # again and again, since a JVM that is only just starting cannot be reached yet
            reading.join(KILL_INTERVAL_SECONDS)
    return outcome


def in_thread(name: str, work: Any, signals: queue.SimpleQueue[Signal]) -> threading.Thread:
    """Run in a daemon thread; its end, good or bad, is a signal of that name."""

    def body() -> None:
        try:
            work()
        except BaseException as failure:
            signals.put((name, failure))
        else:
            signals.put((name, None))

    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    return thread


def await_signals(signals: queue.SimpleQueue[Signal], names: set[str]) -> None:
    """Wait for all of them; the first failure of anything is raised here."""
    while names:
        source, failure = signals.get()
        if failure is not None:
            raise failure
        names.discard(source)


def stop_queries(queries: tuple[StreamingQuery, StreamingQuery]) -> None:
    for query in queries:
        query.stop()


def gather(spark: SparkSession, places: Places, outcome: Outcome) -> None:
    """Read back both results, and the whole log as a reader sees it who does not mind aborted transactions."""
    outcome.seen = spark.read.parquet(places.rows).toPandas()
    outcome.delays = transforms.latest_delays(records(spark, places, places.delays_topic)).toPandas()
    everything = records(spark, places, places.flights_topic, "read_uncommitted")
    counts = transforms.rows_per_attempt(everything).toPandas()
    outcome.written = dict(zip(counts["attempt"], counts["rows"].astype(int), strict=True))
