"""Huge requests of many concurrent connections: the broker's memory stays near its byte budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.floods import Broker
from benchmarks.hostile_concurrent import APIS, GROWTH_MIB, Honest, huge_requests, run_concurrently

if TYPE_CHECKING:
    from pathlib import Path

BUDGET_MIB = 16
CONNECTIONS = 50
"""Hostile connections. Half of them close after their request, half never receive their responses."""
REQUEST_BYTES = 400_000

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
