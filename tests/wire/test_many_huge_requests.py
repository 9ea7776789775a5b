"""Huge requests and parts of them from many concurrent connections: the broker's memory stays near its byte budget."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

import pytest

from benchmarks.floods import Broker
from benchmarks.hostile_concurrent import APIS, GROWTH_MIB, Honest, huge_requests, run_concurrently
from odradek.protocol.batch import Compression, build_batch
from odradek.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.raw_client import encode_request

if TYPE_CHECKING:
    from pathlib import Path

BUDGET_MIB = 16
CONNECTIONS = 50
"""Hostile connections. Half of them close after their request, half never receive their responses."""
REQUEST_BYTES = 400_000

HALF_BUDGET_MIB = 128
HALF_CONNECTIONS = (12, pytest.param(26, marks=pytest.mark.full))
"""Connections that send a part of a request. Half of them close then; half stay open. 26 send more than the budget."""
HALF_REQUEST_BYTES = 9 * 2**20
"""Received bytes of each such request: just beyond a size to which a buffer that grows by a factor of 4 would grow."""
DECLARED_BYTES = 100 * 2**20

EXPANDING_BUDGET_MIB = 128
EXPANDED_BYTES = 30 * 2**20
"""Decompressed bytes of each batch. Its check is counted with three times as many."""

SETTINGS = (f"queued.max.request.bytes={BUDGET_MIB * 2**20}", f"socket.request.max.bytes={BUDGET_MIB * 2**20}")


async def test_memory_of_many_huge_requests_at_once_is_bounded_by_the_byte_budget(tmp_path: Path) -> None:
    """Afterwards the memory is free again, and the cluster works."""
    broker = Broker(tmp_path, settings=SETTINGS)
    try:
        await broker.ready()
        honest = Honest(broker)
        await honest.prepare()
        frames = await huge_requests(broker, APIS, REQUEST_BYTES)
        report = await run_concurrently(broker, honest, frames, CONNECTIONS)
        assert report.growth_mib < BUDGET_MIB + GROWTH_MIB, report
        assert report.after_mib - report.before_mib < GROWTH_MIB, report
        await honest.round()
    finally:
        code = broker.stop()
    assert code == 0


@pytest.mark.parametrize("connections", HALF_CONNECTIONS)
async def test_memory_of_many_half_requests_at_once_is_that_of_their_received_bytes(
    tmp_path: Path, connections: int
) -> None:
    broker = Broker(tmp_path, settings=(f"queued.max.request.bytes={HALF_BUDGET_MIB * 2**20}",))
    try:
        await broker.ready()
        honest = Honest(broker)
        await honest.prepare()
        half = struct.pack(">ihhih", DECLARED_BYTES, ProduceRequest.API_KEY, 9, 1, -1).ljust(HALF_REQUEST_BYTES, b"\0")
        report = await run_concurrently(broker, honest, [half], connections)
        sent_mib = connections * HALF_REQUEST_BYTES / 2**20
        least_mib = min(sent_mib / 2, HALF_BUDGET_MIB / 2)  # half of them stay open
        assert 0.9 * least_mib < report.growth_mib < min(sent_mib, HALF_BUDGET_MIB) + GROWTH_MIB, report
        assert report.after_mib - report.before_mib < GROWTH_MIB, report
    finally:
        code = broker.stop()
    assert code == 0


async def test_memory_of_many_batches_that_expand_is_bounded_by_the_byte_budget(tmp_path: Path) -> None:
    """Each batch of some 100 KB is decompressed for the check of a compacted topic."""
    settings = (f"queued.max.request.bytes={EXPANDING_BUDGET_MIB * 2**20}", "socket.request.max.bytes=4194304")
    broker = Broker(tmp_path, settings=settings)
    try:
        await broker.ready()
        honest = Honest(broker)
        await honest.prepare()
        client = await broker.connect("preparation")
        topic = CreatableTopic("compacted", 1, 1, configs=[CreatableTopicConfig("cleanup.policy", "compact")])
        await client.call(CreateTopicsRequest([topic], 30_000), 7)
        client.close()
        value = bytes(range(256)) * (EXPANDED_BYTES // 256)
        batch = build_batch([(b"k", value, int(time.time() * 1_000), ())], compression=Compression.GZIP)
        assert len(batch) < EXPANDED_BYTES // 100
        data = TopicProduceData("compacted", partition_data=[PartitionProduceData(0, batch)])
        frame = encode_request(ProduceRequest(None, -1, 30_000, [data]), 9, 1, "hostile")
        report = await run_concurrently(broker, honest, [frame], CONNECTIONS)
        assert report.growth_mib > EXPANDED_BYTES / 2**20, report
        assert report.growth_mib < EXPANDING_BUDGET_MIB + GROWTH_MIB, report
        await honest.round()
    finally:
        code = broker.stop()
    assert code == 0
