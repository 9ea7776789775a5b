"""The Spark driver of the campaign: one process, which copies a topic to another one, and which the campaign kills.

It reads its task, and then a line for each pause that ends, from standard input. It writes its events to standard
output, as one JSON object per line. It ends with its standard input.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from odradek.pipeline.cluster.access import Access
from odradek.pipeline.eos.plan import Pause
from odradek.pipeline.spark.session import start_session
from odradek.spark import SinkError, write_batch
from odradek.spark.columns import HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from odradek.spark import Step

MASTER: Final = "local[2,4]"
"""Two cores, and up to four attempts per task: the sink must detect the second attempt of a task."""
BATCH_HEADER: Final = "batch"
RUN_HEADER: Final = "run"
STOCK_STEPS: Final = ("BEGUN", "WRITTEN")
"""Steps of a batch that Spark's own sink writes."""


@dataclass(frozen=True, slots=True)
class Task:
    """Task of one run of the driver.

    Attributes:
        run: Number of the run. A header of each record contains it.
        access: Brokers of the source.
        source: Topic that the query reads.
        checkpoint: Directory of the query's checkpoint.
        offsets_per_batch: Maximum offsets per micro-batch.
        trigger: Minimum interval of the micro-batches, for example "2 seconds".
        sink: Options of the sink.
        stock: Use Spark's own sink.
        available_now: End after the data that is available at the start.
        pauses: Pauses of this run, in order: completed batches and name of a step.
    """

    run: int
    access: Access
    source: str
    checkpoint: str
    offsets_per_batch: int
    trigger: str
    sink: Mapping[str, str] = field(repr=False)
    stock: bool
    available_now: bool
    pauses: tuple[Pause, ...]

    def encode(self) -> str:
        """Return the line for standard input."""
        return json.dumps(asdict(self)) + "\n"


def decode(line: str) -> Task:
    """Return the task of a line."""
    fields: dict[str, Any] = json.loads(line)
    pauses = tuple(Pause(**each) for each in fields["pauses"])
    return Task(**{**fields, "access": Access(**fields["access"]), "pauses": pauses})


def report(event: str, **details: object) -> None:
    """Write an event to standard output in one write call, so that a kill leaves no part of a line."""
    line = json.dumps({"event": event, "at": time.monotonic()} | details)
    os.write(sys.stdout.fileno(), line.encode() + b"\n")


class Steps:
    """Report the steps of all batches, and stop at each pause until a line arrives on standard input."""

    def __init__(self, pauses: tuple[Pause, ...], proceed: Callable[[], object]) -> None:
        self._pauses = list(pauses)
        self._proceed = proceed
        self._batches = 0

    def completed(self, batch_id: int) -> None:
        """Count a complete batch."""
        self._batches += 1
        report("batch", batch=batch_id)

    def reached(self, batch_id: int, step: str) -> None:
        """Report a step, and stop if a pause is due."""
        report("step", batch=batch_id, step=step)
        if not self._pauses:
            return
        pause = self._pauses[0]
        if step == pause.step and self._batches >= pause.batches:
            self._pauses.pop(0)
            report("paused", batch=batch_id, step=step)
            self._proceed()


def rows_of(df: DataFrame, batch_id: int, run: int) -> DataFrame:
    """Return the rows of a batch. Further headers contain the batch and the run that writes them."""
    added = [
        F.struct(F.lit(name).alias("key"), F.lit(str(number)).cast("binary").alias("value"))
        for name, number in ((BATCH_HEADER, batch_id), (RUN_HEADER, run))
    ]
    headers = F.concat(F.coalesce("headers", F.array().cast(HEADERS)), F.array(*added))
    return df.select("key", "value", headers.alias("headers"))


def start(session: SparkSession, task: Task, steps: Steps) -> StreamingQuery:
    """Start the query."""

    def each_batch(df: DataFrame, batch_id: int) -> None:
        rows = rows_of(df, batch_id, task.run)

        def on_step(step: Step) -> None:
            steps.reached(batch_id, step.name)

        try:
            if task.stock:
                write_stock(rows, task, batch_id, steps)
            else:
                write_batch(rows, batch_id, task.sink, on_step=on_step)
        except SinkError as error:
            report("refused", batch=batch_id, error=type(error).__name__, message=str(error))
            raise
        steps.completed(batch_id)

    stream = (
        session.readStream.format("kafka")
        .options(**task.access.spark())
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", task.source)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", value=True)
        .option("maxOffsetsPerTrigger", task.offsets_per_batch)
        .load()
    )
    writer = stream.writeStream.foreachBatch(each_batch).option("checkpointLocation", task.checkpoint)
    if task.available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=task.trigger).start()


def write_stock(rows: DataFrame, task: Task, batch_id: int, steps: Steps) -> None:
    """Write a batch with Spark's own sink."""
    steps.reached(batch_id, STOCK_STEPS[0])
    options = {name: value for name, value in task.sink.items() if name == "topic" or name.startswith("kafka.")}
    rows.write.format("kafka").options(**options).save()
    steps.reached(batch_id, STOCK_STEPS[1])


def main(arguments: list[str]) -> int:
    """Start Spark, then carry out the task. Return the exit code: 1 if the query failed."""
    console, settings = Path(arguments[0]), json.loads(arguments[1])
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read_lines() -> None:
        # Do not use sys.stdin: this thread would hold its lock, for which the interpreter waits at exit.
        with os.fdopen(os.dup(0), encoding="utf-8") as standard_input:
            for line in standard_input:
                lines.put(line)
        os._exit(1)  # the campaign has ended; the JVM ends with its own standard input

    threading.Thread(target=read_lines, daemon=True).start()
    session = start_session("exactly-once campaign", MASTER, console=console, settings=settings)
    report("ready")
    task = decode(lines.get())
    query = start(session, task, Steps(task.pauses, lines.get))
    try:
        query.awaitTermination()
    except Exception as error:
        report("failed", message=str(error)[-2000:])
        return 1
    report("ended")
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # An orderly interpreter exit would wait for Spark and for the thread that reads standard input.
    os._exit(code)
