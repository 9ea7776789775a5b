"""Run producer, Spark job, copies and broker kills in parallel threads until Spark has read everything.

The calling thread only waits. An interrupt (SIGINT) is therefore never raised inside a call of Spark's.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
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

    from odradek.pipeline.cluster.access import Access
    from odradek.pipeline.demo.copies import Copier
    from odradek.pipeline.demo.screen import Screen
    from odradek.pipeline.faults.broker_kills import BrokerKiller
    from odradek.pipeline.producer.supervisor import Supervisor
    from odradek.pipeline.spark.delays_job import JobOptions

STOP_SECONDS_MAX = 10.0
"""Maximum seconds for the end of each thread after the run."""
KILL_INTERVAL_SECONDS = 0.2
"""Seconds between two attempts to kill the JVM."""


class QueryFailed(RuntimeError):
    """A streaming query failed."""


@dataclass(slots=True)
class JobResults:
    """Results of the Spark job, as read back at the end of the run.

    Attributes:
        batches: (seconds of time.monotonic, rows) of each micro-batch of the query that writes the rows.
        seen: The rows that this query wrote, with the attempt that wrote each of them; None before the end.
        delays: The last values of each group of carrier and origin; None before the end.
        written: Rows in the log per attempt, including aborted attempts.
        copies: The rows that the exactly-once sink wrote, with batch and run of each; None before the end.
    """

    batches: list[tuple[float, int]] = field(default_factory=list)
    seen: pd.DataFrame | None = None
    delays: pd.DataFrame | None = None
    written: dict[str, int] = field(default_factory=dict)
    copies: pd.DataFrame | None = None


Signal = tuple[str, BaseException | None]
"""End of a thread or query: its name, and its error or None."""
Topics = Mapping[str, int]
"""Partition count of each topic."""


class Listener(StreamingQueryListener):
    """Report progress and failures of the streaming queries. Spark calls it in a thread of its own."""

    def __init__(self, results: JobResults, screen: Screen, signals: queue.SimpleQueue[Signal]) -> None:
        super().__init__()
        self._results = results
        self._screen = screen
        self._signals = signals

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if progress.name == "rows" and progress.numInputRows:
            self._results.batches.append((time.monotonic(), progress.numInputRows))
        self._screen.batch(str(progress.name), progress.numInputRows)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if event.exception is not None:
            self._signals.put(("query", QueryFailed(event.exception)))


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a run, each of which has a thread.

    Attributes:
        supervisor: Supervisor of the producer.
        broker_killer: None if no brokers are to be killed.
        copier: Copies of the flights.
        job: Options of the Spark job.
        topics: All topics of the run.
        auditor: Access for readers that check the topics.
        master: Spark master of the job.
        console: File for the output of Spark's JVM.
        screen: Progress display.
        finish: Called with the session at the end of the job, when all topics are complete.
    """

    supervisor: Supervisor
    broker_killer: BrokerKiller | None
    copier: Copier
    job: JobOptions
    topics: Topics
    auditor: Access
    master: str
    console: Path
    screen: Screen
    finish: Callable[[SparkSession], None]


class DemoRun:
    """One run of the producer, the Spark job and the copies with all kills. `run` may be called once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._results = JobResults()
        self._signals: queue.SimpleQueue[Signal] = queue.SimpleQueue()
        self._started, self._produced, self._copied = threading.Event(), threading.Event(), threading.Event()

    def run(self) -> JobResults:
        """Run all parts, and return the results of the job.

        Raises:
            ProducerFailed: The producer failed without a planned kill.
            DriverFailed: The driver of the copies failed without a planned kill.
            QueryFailed: A streaming query failed. Other errors of Spark and the Kafka client are raised unchanged.
        """
        bodies = {"produce": self._produce, "read": self._read, "copy": self._copy, "kill brokers": self._kill_brokers}
        threads = {name: start_thread(name, body, self._signals) for name, body in bodies.items()}
        try:
            await_signals(self._signals, set(bodies))
        finally:
            self._stop(threads)
        return self._results

    def _produce(self) -> None:
        self._started.wait()  # Spark has to read while the producer writes and is killed, even in a short run.
        if not self._parts.supervisor.run():
            return
        # The coordinator responds to EndTxn before it writes the markers. Readers see the rows only after the markers.
        await_stable(self._parts.auditor, self._parts.topics)
        self._produced.set()

    def _read(self) -> None:
        job, results = self._parts.job, self._results
        spark = start_session("flight delays", self._parts.master, console=self._parts.console)
        spark.streams.addListener(Listener(results, self._parts.screen, self._signals))
        queries = start_job(spark, job)
        self._started.set()
        self._produced.wait()
        for query in queries:
            query.processAllAvailable()
        stop_queries(queries)
        self._copied.wait()
        read_results(spark, job, results)
        results.copies = transforms.copies(records(spark, job, self._parts.copier.topic)).toPandas()
        self._parts.finish(spark)
        stop_session(spark)

    def _copy(self) -> None:
        self._started.wait()
        self._parts.copier.run(self._produced)
        await_stable(self._parts.auditor, self._parts.topics)
        self._copied.set()

    def _kill_brokers(self) -> None:
        if self._parts.broker_killer is not None:
            self._parts.broker_killer.run(self._parts.supervisor.end_pause)

    def _stop(self, threads: Mapping[str, threading.Thread]) -> None:
        """Stop all parts, and wait for their threads."""
        self._parts.supervisor.stop()
        self._parts.copier.stop()
        if self._parts.broker_killer is not None:
            self._parts.broker_killer.stop()
        for event in (self._started, self._produced, self._copied):
            event.set()
        reader = threads["read"]
        for thread in threads.values():
            if thread is not reader:
                thread.join(STOP_SECONDS_MAX)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while reader.is_alive() and time.monotonic() < deadline:
            kill_session()  # repeated: a JVM that is starting has no gateway yet, and is not killed
            reader.join(KILL_INTERVAL_SECONDS)


def start_thread(name: str, work: Any, signals: queue.SimpleQueue[Signal]) -> threading.Thread:
    """Run `work` in a daemon thread. When it returns or raises, put a signal with `name` into `signals`."""

    def body() -> None:
        try:
            work()
        except BaseException as error:
            signals.put((name, error))
        else:
            signals.put((name, None))

    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    return thread


def await_signals(signals: queue.SimpleQueue[Signal], names: set[str]) -> None:
    """Wait for a signal with each of `names`. Raise the error of the first signal that has one."""
    while names:
        source, error = signals.get()
        if error is not None:
            raise error
        names.discard(source)


def stop_queries(queries: tuple[StreamingQuery, StreamingQuery]) -> None:
    for query in queries:
        query.stop()


def read_results(spark: SparkSession, job: JobOptions, results: JobResults) -> None:
    """Read the output of both queries, and the flights topic with read_uncommitted, into `results`."""
    results.seen = spark.read.parquet(job.rows).toPandas()
    results.delays = transforms.latest_delays(records(spark, job, job.delays_topic)).toPandas()
    uncommitted = records(spark, job, job.flights_topic, "read_uncommitted")
    counts = transforms.rows_per_attempt(uncommitted).toPandas()
    results.written = dict(zip(counts["attempt"], counts["rows"].astype(int), strict=True))
