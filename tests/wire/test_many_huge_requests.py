"""Huge requests and parts of them from many concurrent connections: the broker's memory stays near its byte budget."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from benchmarks.floods import Broker
from benchmarks.hostile_concurrent import APIS, GROWTH_MIB, Honest, huge_requests, run_concurrently
from odradek.protocol.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from pathlib import Path

BUDGET_MIB = 16
CONNECTIONS = 50
"""Hostile connections. Half of them close after their request, half never receive their responses."""
REQUEST_BYTES = 400_000

HALF_BUDGET_MIB = 256
HALF_CONNECTIONS = 24
"""Connections that send a part of a request. Half of them close then; half stay open."""
HALF_REQUEST_BYTES = 9 * 2**20
"""Received bytes of each such request: just beyond a size to which a buffer that grows by a factor of 4 would grow."""
DECLARED_BYTES = 100 * 2**20

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


async def test_memory_of_many_half_requests_at_once_is_that_of_their_received_bytes(tmp_path: Path) -> None:
    broker = Broker(tmp_path, settings=(f"queued.max.request.bytes={HALF_BUDGET_MIB * 2**20}",))
    try:
        await broker.ready()
        honest = Honest(broker)
        await honest.prepare()
        half = struct.pack(">ihhih", DECLARED_BYTES, ProduceRequest.API_KEY, 9, 1, -1).ljust(HALF_REQUEST_BYTES, b"\0")
        report = await run_concurrently(broker, honest, [half], HALF_CONNECTIONS)
        open_mib = HALF_CONNECTIONS // 2 * HALF_REQUEST_BYTES / 2**20
        assert 0.9 * open_mib < report.growth_mib < HALF_CONNECTIONS * HALF_REQUEST_BYTES / 2**20 + GROWTH_MIB, report
        assert report.after_mib - report.before_mib < GROWTH_MIB, report
    finally:
        code = broker.stop()
    assert code == 0
