"""python -m benchmarks.compaction: measure how compaction affects the event loop and clients.

- Slices: the time of each callback of the event loop while a log is compacted in this process, for several batch sizes.
- Produce latency: a client produces single records to a broker with a large compacted topic, first with the cleaner off
  and then during a compaction.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from asyncio import events
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from rich.console import Console
from rich.table import Table

from odradek import LocalCluster
from odradek.broker.config.property import DOUBLE_MAX
from odradek.broker.partition.compaction_job import pacing
from odradek.protocol.batch import build_batch
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.storage.compaction.cleaner import CleanerLimits, Cleaning, cleanable
from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from tests.support.logs import NOW_MS, append, open_log
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = 20_000
VALUE_BYTES = 100
SHAPES = {
    "one record per batch": (1, VALUE_BYTES),
    "100 records per batch": (100, VALUE_BYTES),
    "1 MiB per batch": (10, 100_000),
}
"""Title -> (records per batch, bytes per value)."""
LOG_BYTES = 16 << 20
SEGMENT_BYTES = 4 << 20
LIMITS = CleanerLimits(dedupe_buffer_size=128 << 20, load_factor=0.9, io_buffer_size=512 << 10)
COMPACTED, PRODUCED = "compacted", "produced"
PRODUCE_VERSION = 9
THINK_SECONDS = 0.001
WARM_UP_SECONDS = 2.0
QUANTILE_99 = 98
CONSOLE_WIDTH = 120


@dataclass
class Durations:
    """Durations in seconds. `processor` is the processor time of each, without waits for the disk or a processor."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def row(self) -> list[str]:
        """Return median, 99th percentile and maximum in ms, and the maximum processor time if it was measured."""
        spread = statistics.quantiles(self.seconds, n=100)
        found = (statistics.median(self.seconds), spread[QUANTILE_99], max(self.seconds), *sorted(self.processor)[-1:])
        return [f"{1000 * each:.2f}" for each in found] + ["-"] * (not self.processor)


def batches(records: int, value_bytes: int) -> Iterator[bytes]:
    """Generate batches until their size exceeds LOG_BYTES."""
    value, number, size = b"v" * value_bytes, 0, 0
    while size < LOG_BYTES:
        rows = [(b"key-%08d" % ((number + index) * 7919 % KEYS), value, NOW_MS, ()) for index in range(records)]
        number += records
        batch = build_batch(rows)
        size += len(batch)
        yield batch


def slice_times(records: int, value_bytes: int) -> tuple[Durations, int, float]:
    """Compact a log.

    Return the duration of each callback of the event loop, the number of records, and the total seconds.
    """
    found = Durations()
    run_handle = events.Handle._run

    def timed(self: events.Handle) -> None:
        began, busy = perf_counter(), thread_time()
        run_handle(self)
        found.processor.append(thread_time() - busy)
        found.seconds.append(perf_counter() - began)

    async def clean(folder: str) -> tuple[int, float]:
        disk = OsDisk()
        log = open_log(disk, folder, LogConfig(segment_bytes=SEGMENT_BYTES, cleanup_policy=("compact",)))
        for batch in batches(records, value_bytes):
            append(log, batch)
        log.roll(NOW_MS)
        await log.flush()
        cleaning = Cleaning(
            log, cleanable(log, NOW_MS), LIMITS, pacing(lambda: DOUBLE_MAX), expiry_ms=NOW_MS, wall_ms=NOW_MS
        )
        count = log.log_end_offset
        began = perf_counter()
        events.Handle._run = timed  # type: ignore[method-assign]
        try:
            await cleaning.run()
        finally:
            events.Handle._run = run_handle  # type: ignore[method-assign]
        took = perf_counter() - began
        log.close(clean=True)
        disk.close()
        return count, took

    with tempfile.TemporaryDirectory() as folder:
        count, took = asyncio.run(clean(folder))
    return found, count, took


async def produce_records(endpoint: str, seconds: float) -> Durations:
    """Produce one record after the other with acks=1. Return the latencies."""
    host, _, port = endpoint.rpartition(":")
    client = await RawClient.connect(host, int(port), client_id="producer")
    found = Durations()
    until = perf_counter() + seconds
    while perf_counter() < until:
        batch = build_batch([(b"key", b"value", NOW_MS, ())])
        topic = TopicProduceData(name=PRODUCED, partition_data=[PartitionProduceData(index=0, records=batch)])
        began = perf_counter()
        response: Any = await client.call(ProduceRequest(acks=1, timeout_ms=5000, topic_data=[topic]), PRODUCE_VERSION)
        found.seconds.append(perf_counter() - began)
        if response.responses[0].partition_responses[0].error_code:
            raise RuntimeError(response)
        await asyncio.sleep(THINK_SECONDS)
    client.close()
    return found


def fill(bootstrap: str, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    compacted = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01"}
    for future in admin.create_topics([NewTopic(COMPACTED, 1, 1, config=compacted), NewTopic(PRODUCED, 1, 1)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    for number in range(records):
        while True:
            try:
                producer.produce(COMPACTED, b"v" * VALUE_BYTES, b"key-%08d" % (number * 7919 % (records // 2)))
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def produce_latencies(records: int, seconds: float, console: Console) -> dict[str, Durations]:
    """Measure the produce latency of one client, with the cleaner off and on."""
    found: dict[str, Durations] = {}
    with tempfile.TemporaryDirectory() as folder:
        off = {"log.cleaner.enable": "false"}
        with LocalCluster(1, directory=folder, settings=off) as cluster:
            fill(cluster.bootstrap, records)
        for name, enabled in (("cleaner off", "false"), ("cleaner on", "true")):
            with LocalCluster(1, directory=folder, settings={"log.cleaner.enable": enabled}) as cluster:
                asyncio.run(produce_records(cluster.bootstrap, WARM_UP_SECONDS))
                found[name] = asyncio.run(produce_records(cluster.bootstrap, seconds))
                cleaning = any(Path(folder).rglob(f"{COMPACTED}-0/*.cleaned"))
                if cleaning != (enabled == "true"):
                    state = "was" if cleaning else "was not"
                    console.print(f"invalid measurement: with {name}, the log {state} being compacted", style="red")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    parser.add_argument("--records", type=int, default=600_000, help="records in the compacted topic (default 600,000)")
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="seconds of each produce latency measurement (default 15)"
    )
    options = parser.parse_args()
    console = Console(width=CONSOLE_WIDTH)
    table = Table(title="Compaction, in ms")
    for title in ("", "median", "99th percentile", "maximum", "maximum, processor time", ""):
        table.add_column(title, justify="left" if not title else "right")
    for name, (records, value_bytes) in SHAPES.items():
        slices, count, took = slice_times(records, value_bytes)
        table.add_row(f"slice, {name}", *slices.row(), f"{count / took:,.0f} records/s")
    for name, latencies in produce_latencies(options.records, options.seconds, console).items():
        table.add_row(f"produce latency, {name}", *latencies.row(), f"{len(latencies.seconds):,} requests")
    console.print(table)


if __name__ == "__main__":
    main()
