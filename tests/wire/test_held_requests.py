"""Requests that wait for days do not keep the byte budget of a broker from other requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from benchmarks.floods import Broker
from benchmarks.hostile_concurrent import TOPIC, Honest
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.raw_client import encode_request

if TYPE_CHECKING:
    from pathlib import Path

BUDGET_MIB = 32
SETTINGS = (f"queued.max.request.bytes={BUDGET_MIB * 2**20}", f"socket.request.max.bytes={BUDGET_MIB * 2**20}")
CONNECTIONS = 4
PARTITIONS = 60_000
"""Partitions per request. Its frame, elements and parameters are charged with about 20 MiB."""


async def test_fetches_that_wait_for_days_release_the_byte_budget_for_other_requests(tmp_path: Path) -> None:
    broker = Broker(tmp_path, settings=SETTINGS)
    try:
        await broker.ready()
        honest = Honest(broker)
        await honest.prepare()
        missing = [FetchPartition(index) for index in range(PARTITIONS)]
        empty = [FetchPartition(0, fetch_offset=1, partition_max_bytes=1)]
        waiting = FetchRequest(
            max_wait_ms=2**31 - 1,
            min_bytes=2**31 - 1,
            topics=[FetchTopic(TOPIC, partitions=empty), FetchTopic("missing", partitions=missing)],
        )
        frame = encode_request(waiting, 11, 1, "hostile")
        connections = [await asyncio.open_connection(*broker.address) for _ in range(CONNECTIONS)]
        for _, writer in connections:
            writer.write(frame)
        async with asyncio.timeout(60):
            await honest.large_round()
            assert await connections[0][0].read() == b"", "the first one has waited with an exhausted budget"
        await honest.round()
        for _, writer in connections:
            writer.close()
    finally:
        code = broker.stop()
    assert code == 0
