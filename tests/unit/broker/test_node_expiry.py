"""Retention in a cluster of nodes with different clocks."""

import asyncio
from pathlib import Path

import pytest

from odradek.broker.partition.background_jobs import apply_retention
from odradek.broker.process.clock import SystemClock
from odradek.broker.process.expiry_clock import ExpiryClock
from odradek.protocol.errors import ErrorCode
from tests.support.node_cluster import UNTIL_S, NodeCluster

DAY_MS = 24 * 60 * 60 * 1_000
AHEAD_MS = 8 * DAY_MS
LEADER = 2


async def test_leader_eight_days_ahead_deletes_no_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first start has no checkpoint of the expiry time. The clocks in the datagrams of the others are enough."""
    nodes = NodeCluster(tmp_path, 3)
    senders: set[int] = set()
    received_all = asyncio.Event()
    received = ExpiryClock.received

    def recorded(clock: ExpiryClock, node_id: int, wall_ms: int) -> None:
        received(clock, node_id, wall_ms)
        if clock is leader.env.clock:
            senders.add(node_id)
        if senders >= {1, 3}:
            received_all.set()

    monkeypatch.setattr(ExpiryClock, "received", recorded)
    try:
        leader = nodes.make(LEADER, clock_ahead_ms=AHEAD_MS)
        await nodes.start_made({LEADER: leader}, [1, 3])
        await nodes.create("t", [LEADER, 1, 3], retention_ms=str(7 * DAY_MS))
        assert await nodes.produce("t", b"kept") is ErrorCode.NONE
        await asyncio.wait_for(received_all.wait(), UNTIL_S)
        partition = leader.broker.context.partitions.get("t", 0)
        assert partition is not None
        clock = leader.env.clock
        assert clock.wall_ms() >= SystemClock().wall_ms() + 7 * DAY_MS
        apply_retention(partition, clock.expiry_ms())
        assert await nodes.values("t") == [b"kept"]
        apply_retention(partition, clock.wall_ms())
        assert partition.log.log_start_offset == 1, "the wall clock alone would have deleted the record"
    finally:
        await nodes.stop()
