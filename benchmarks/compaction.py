"""python -m benchmarks.compaction: how long compaction holds the event loop at a time, and what a client feels of it while a large log is compacted.

The first is measured in this process, handle by handle, on a log of each shape. For the second a broker is filled, then started with its cleaner
off and asked for a while, then with its cleaner on, and asked for as long while it compacts: each question a produce of one record to another topic.
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
    "a record a batch": (1, VALUE_BYTES),
    "100 records a batch": (100, VALUE_BYTES),
    "1 MiB a batch": (10, 100_000),
}
LOG_BYTES = 16 << 20
SEGMENT_BYTES = 4 << 20
LIMITS = CleanerLimits(dedupe_buffer_size=128 << 20, load_factor=0.9, io_buffer_size=512 << 10)
COMPACTED, ASKED = "compacted", "asked"
PRODUCE_VERSION = 9
THINK_SECONDS = 0.001
WARM_UP_SECONDS = 2.0
QUANTILE_99 = 98
CONSOLE_WIDTH = 120


@dataclass
class Durations:
    """Seconds each; `processor` is what of it was not spent waiting, for the disk or for a processor."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def row(self) -> list[str]:
        """Median, 99th percentile and longest, in ms; the longest of processor time, where it is known."""
        spread = statistics.quantiles(self.seconds, n=100)
        found = (statistics.median(self.seconds), spread[QUANTILE_99], max(self.seconds), *sorted(self.processor)[-1:])
        return [f"{1000 * each:.2f}" for each in found] + ["-"] * (not self.processor)


def batches(records: int, value_bytes: int) -> Iterator[bytes]:
    """As many as make up LOG_BYTES."""
    value, number, size = b"v" * value_bytes, 0, 0
    while size < LOG_BYTES:
        rows = [(b"key-%08d" % ((number + index) * 7919 % KEYS), value, NOW_MS, ()) for index in range(records)]
        number += records
        batch = build_batch(rows)
        size += len(batch)
        yield batch


def hold_times(records: int, value_bytes: int) -> tuple[Durations, int, float]:
    """Of each handle of the loop while a log is compacted; records in it; seconds that it took."""
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
        cleaning = Cleaning(log, cleanable(log, NOW_MS), LIMITS, pacing(DOUBLE_MAX), now_ms=NOW_MS)
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


async def ask(endpoint: str, seconds: float) -> Durations:
    """Produce one record after the other with acks=1."""
    host, _, port = endpoint.rpartition(":")
    client = await RawClient.connect(host, int(port), client_id="asker")
    found = Durations()
    until = perf_counter() + seconds
    while perf_counter() < until:
        batch = build_batch([(b"key", b"value", NOW_MS, ())])
        topic = TopicProduceData(name=ASKED, partition_data=[PartitionProduceData(index=0, records=batch)])
        began = perf_counter()
        response: Any = await client.call(ProduceRequest(acks=1, timeout_ms=5000, topic_data=[topic]), PRODUCE_VERSION)
        found.seconds.append(perf_counter() - began)
        if response.responses[0].partition_responses[0].error_code:
            raise RuntimeError(response)
        await asyncio.sleep(THINK_SECONDS)
    client.close()
    return found


def fill(bootstrap: str, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    compacted = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01"}
    for future in admin.create_topics([NewTopic(COMPACTED, 1, 1, config=compacted), NewTopic(ASKED, 1, 1)]).values():
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


def delays(records: int, seconds: float, console: Console) -> dict[str, Durations]:
    """What a client waits for its answers, with the cleaner off and on."""
    found: dict[str, Durations] = {}
    with tempfile.TemporaryDirectory() as folder:
        off = {"log.cleaner.enable": "false"}
        with LocalCluster(1, directory=folder, settings=off) as cluster:
            fill(cluster.bootstrap, records)
        for name, enabled in (("cleaner off", "false"), ("cleaner on", "true")):
            with LocalCluster(1, directory=folder, settings={"log.cleaner.enable": enabled}) as cluster:
                asyncio.run(ask(cluster.bootstrap, WARM_UP_SECONDS))
                found[name] = asyncio.run(ask(cluster.bootstrap, seconds))
                cleaning = any(Path(folder).rglob(f"{COMPACTED}-0/*.cleaned"))
                if cleaning != (enabled == "true"):
                    console.print(
                        f"{name}: the log {'is' if cleaning else 'was not'} being compacted to the end", style="red"
                    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    parser.add_argument("--records", type=int, default=600_000, help="in the broker's log (default 600,000)")
    parser.add_argument("--seconds", type=float, default=15.0, help="of asking, off and on (default 15)")
    options = parser.parse_args()
    console = Console(width=CONSOLE_WIDTH)
    table = Table(title="Compaction: ms")
    for title in ("", "median", "99th percentile", "longest", "longest, processor", ""):
        table.add_column(title, justify="left" if not title else "right")
    for name, (records, value_bytes) in SHAPES.items():
        held, count, took = hold_times(records, value_bytes)
        table.add_row(f"the loop is held: {name}", *held.row(), f"{count / took:,.0f} records/s")
    for name, waited in delays(options.records, options.seconds, console).items():
        table.add_row(f"a request takes: {name}", *waited.row(), f"{len(waited.seconds):,} requests")
    console.print(table)


if __name__ == "__main__":
    main()
