"""``python -m benchmarks.hostile_concurrent``: memory of a broker while many connections send huge requests.

Half of the connections close after their request; the other half stay open and never receive their responses.
Meanwhile an honest client produces and fetches. Exit code 1 if the broker grows by more than its byte budget and
GROWTH_MIB, or if the honest client receives an error.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from benchmarks.floods import Broker
from benchmarks.hostile import served
from odradek.protocol.batch import build_batch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.hostile_values import array_paths, huge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.raw_client import RawClient

GROWTH_MIB: Final = 64
"""Permitted growth of the broker beyond its byte budget: one request, and memory that the allocator keeps."""
APIS: Final = (
    "OffsetFetch",
    "Metadata",
    "DescribeConfigs",
    "ListOffsets",
    "FindCoordinator",
    "DescribeGroups",
    "Fetch",
    "Produce",
)
CLOSING_SECONDS: Final = 10.0
"""Time for which a hostile connection waits at most until the broker has taken its request from the socket."""
SECONDS_MAX: Final = 300.0
HONEST_PAUSE_SECONDS: Final = 0.01
TOPIC: Final = "honest"
LARGE_PARTITIONS: Final = 20_000
"""Partitions in a large request of the honest client. The broker decodes and handles it in slices."""


@dataclass
class Report:
    before_mib: float
    peak_mib: float
    after_mib: float
    honest_rounds: int

    @property
    def growth_mib(self) -> float:
        return self.peak_mib - self.before_mib


class Honest:
    """Client that produces a record and fetches it, again and again."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.rounds = 0

    async def prepare(self) -> None:
        self._client = await self._connect()
        retained = [CreatableTopicConfig("retention.ms", "-1")]  # the records have timestamp 0
        created = await self._client.call(
            CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1, configs=retained)], 30_000), 7
        )
        assert created.topics[0].error_code == ErrorCode.NONE, created.topics[0]
        await self.round()

    async def _connect(self) -> RawClient:
        return await self._broker.connect("honest")

    async def round(self) -> None:
        data = PartitionProduceData(0, build_batch([(None, b"v", 0, ())]))
        produced = await self._client.call(
            ProduceRequest(None, -1, 30_000, [TopicProduceData(TOPIC, partition_data=[data])]), 9, timeout=SECONDS_MAX
        )
        [result] = produced.responses[0].partition_responses
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, self.rounds), result
        partition = FetchPartition(0, fetch_offset=self.rounds, partition_max_bytes=1_000_000)
        fetched = await self._client.call(
            FetchRequest(
                replica_id=-1,
                max_wait_ms=1_000,
                min_bytes=1,
                max_bytes=1_000_000,
                topics=[FetchTopic(TOPIC, partitions=[partition])],
            ),
            11,
            timeout=SECONDS_MAX,
        )
        assert fetched.responses[0].partitions[0].records, fetched
        self.rounds += 1

    async def large_round(self) -> None:
        """Send a large request on a connection of its own. The broker handles it after the large ones before it."""
        client = await self._connect()
        partitions = [ListOffsetsPartition(index, -1, timestamp=-1) for index in range(LARGE_PARTITIONS)]
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("missing", partitions)])
        response = await client.call(request, 7, timeout=SECONDS_MAX)
        assert len(response.topics[0].partitions) == LARGE_PARTITIONS
        client.close()

    async def run(self, end: asyncio.Event) -> None:
        while not end.is_set():
            await self.round()
            await asyncio.sleep(HONEST_PAUSE_SECONDS)


async def huge_requests(broker: Broker, apis: Sequence[str], size: int) -> list[bytes]:
    """Return a huge request of `size` bytes for each array of `apis`."""
    frames = []
    for cls, version in await served(broker):
        if cls.NAME.removesuffix("Request") in apis:
            frames += [huge(cls, version, path, size).frame for path in array_paths(cls, version)]
    return frames


def attack(address: tuple[str, int], frame: bytes, *, stays: bool) -> socket.socket | None:
    """Send `frame` on a connection of its own. Return the connection if it stays open, without receiving.

    The broker may close the connection, or not read it while its byte budget is exhausted.
    """
    connection = socket.create_connection(address, timeout=CLOSING_SECONDS)
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.sendall(frame)
    except OSError:
        connection.close()
        return None
    if stays:
        return connection
    connection.close()
    return None


def frames_for(frames: Sequence[bytes], connections: int) -> Iterator[tuple[bytes, bool]]:
    """Yield (request, whether its connection stays open) for each connection: each request in both ways."""
    for number in range(connections):
        yield frames[number // 2 % len(frames)], number % 2 == 1


async def run_concurrently(broker: Broker, honest: Honest, frames: Sequence[bytes], connections: int) -> Report:
    """Attack with `connections` concurrent connections, until the broker has handled or refused all requests."""
    before_mib = broker.resident_mib
    broker.reset_peak()
    end = asyncio.Event()
    with ExitStack() as connected:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(honest.run(end))
            with ThreadPoolExecutor(connections) as threads:
                attacks = [
                    asyncio.wrap_future(threads.submit(attack, broker.address, frame, stays=stays))
                    for frame, stays in frames_for(frames, connections)
                ]
                for connection in await asyncio.gather(*attacks):
                    if connection is not None:
                        connected.enter_context(connection)
            await honest.large_round()
            connected.close()
            await honest.large_round()
            end.set()
    return Report(before_mib, broker.peak_mib, broker.resident_mib, honest.rounds)


async def run(connections: int, size: int, apis: Sequence[str], settings: Sequence[str], budget_mib: float) -> int:
    with tempfile.TemporaryDirectory(prefix="odradek-hostile-") as directory:
        broker = Broker(Path(directory), settings=settings)
        try:
            await broker.ready()
            honest = Honest(broker)
            await honest.prepare()
            frames = await huge_requests(broker, apis, size)
            report = await run_concurrently(broker, honest, frames, connections)
        finally:
            code = broker.stop()
    print(
        f"{connections} connections, {len(frames)} arrays of {size:,} bytes:"
        f" resident {report.before_mib:.0f} MiB before, at most {report.peak_mib:.0f} MiB,"
        f" {report.after_mib:.0f} MiB afterwards;"
        f" {report.honest_rounds} rounds of the honest client"
    )
    return 1 if code or report.growth_mib > budget_mib + GROWTH_MIB else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile_concurrent", description=__doc__)
    parser.add_argument("--connections", type=int, default=80)
    parser.add_argument("--bytes", type=int, default=4_000_000, help="size of each request (default 4,000,000)")
    parser.add_argument("--budget", type=int, default=512, help="queued.max.request.bytes in MiB (default 512)")
    parser.add_argument("apis", nargs="*", default=APIS, help="APIs of the requests")
    options = parser.parse_args()
    settings = (
        f"queued.max.request.bytes={options.budget * 2**20}",
        f"socket.request.max.bytes={min(100, options.budget) * 2**20}",
    )
    return uvloop.run(run(options.connections, options.bytes, options.apis, settings, options.budget))


if __name__ == "__main__":
    sys.exit(main())
