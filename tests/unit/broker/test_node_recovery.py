"""Recovery of logs at the start of a node: the metadata quorum works meanwhile, and the broker registers after it."""

import asyncio
import random
from pathlib import Path

from odradek.broker.node import Node
from odradek.broker.process.clock import SystemClock
from odradek.broker.process.env import Env
from odradek.local.recovery import Recovery, recovery_of
from tests.support.blocked_disk import GUARD_S, BlockedDisk
from tests.support.broker_context import config
from tests.support.raw_client import RawClient
from tests.support.running_node import RunningNode, running


async def test_node_leads_the_metadata_quorum_and_registers_after_the_recovery_of_its_logs(tmp_path: Path) -> None:
    async with running(tmp_path) as previous:
        await previous.produce("t", b"a")
        epoch = previous.node.metadata.image.brokers[1].epoch
    disk = BlockedDisk()
    node = Node(
        config(f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0", "odradek.metrics.listener=127.0.0.1:0"),
        Env(disk, SystemClock(), random.Random(1), "boot"),
    )
    disk.allowed.clear()
    start = asyncio.ensure_future(node.start())
    try:
        assert await asyncio.to_thread(disk.waiting.wait, GUARD_S)
        async with asyncio.timeout(GUARD_S):
            while node.quorum.raft.leader_id != 1 or 1 not in node.metadata.image.brokers:
                await asyncio.sleep(0.005)
        broker = node.metadata.image.brokers[1]
        assert (broker.epoch, broker.is_active) == (epoch, False)
        logs = node.logs.loading.total
        url = f"http://127.0.0.1:{node.metrics_port}/metrics"
        assert await asyncio.to_thread(recovery_of, url) == Recovery(logs - node.logs.loading.remaining, logs)
        assert node.logs.loading.remaining > 0
        disk.allowed.set()
        await start
        assert await asyncio.to_thread(recovery_of, url) is None
        broker = node.metadata.image.brokers[1]
        assert broker.epoch > epoch
        assert broker.is_active
        client = await RawClient.connect("127.0.0.1", node.listeners[0].port)
        assert await RunningNode(node, client, []).values("t") == [b"a"]
        client.close()
    finally:
        disk.allowed.set()
        await asyncio.gather(start, return_exceptions=True)
        await node.stop()
        disk.close()
