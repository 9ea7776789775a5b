"""The first requests to a coordinator need no retry, although the logs of its topic are opened in slices."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.broker.partition import registry
from odradek.broker.partition.registry import CREATE_LOG_COST
from odradek.protocol.errors import ErrorCode
from odradek.protocol.hashing import partition_for
from odradek.protocol.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.runtime.rest import Pace
from tests.support.node_cluster import NodeCluster

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

GROUP, TRANSACTION = 0, 1
PARTITIONS = 50
LAST = PARTITIONS - 1


def name_in_last_partition() -> str:
    return next(name for name in map(str, range(10_000)) if partition_for(name, PARTITIONS) == LAST)


async def test_first_request_to_a_coordinator_opens_the_log_of_its_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After COORDINATOR_LOAD_IN_PROGRESS, librdkafka tries again after half a second."""
    rests_end = asyncio.Event()

    class HeldPace(Pace):
        async def rest(self, factor: float | None = None) -> None:
            await rests_end.wait()

    nodes = NodeCluster(tmp_path, 1)
    name = name_in_last_partition()
    try:
        await nodes.start()
        broker = nodes.nodes[1].broker
        assert broker is not None
        partitions = broker.partitions
        client = await nodes.client(1)
        without_id = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
        async with asyncio.timeout(30):  # until the broker has a block of producer ids
            while (await client.call(without_id, 4)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                pass
        monkeypatch.setattr(registry, "Pace", HeldPace)
        monkeypatch.setattr(registry, "ROLE_CHANGES_PER_SLICE", CREATE_LOG_COST)
        for kind, topic in ((TRANSACTION, TRANSACTION_STATE), (GROUP, CONSUMER_OFFSETS)):
            found = await client.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[name]), 4)
            assert found.coordinators[0].error_code == ErrorCode.NONE
            assert partitions.get(topic, LAST) is None
        initialized = await client.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1_000), 4)
        assert initialized.error_code == ErrorCode.NONE
        beat = await client.call(HeartbeatRequest(group_id=name, generation_id=1, member_id="unknown"), 4)
        assert beat.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert [partitions.get(topic, LAST - 1) for topic in (TRANSACTION_STATE, CONSUMER_OFFSETS)] == [None, None]
        client.close()
        rests_end.set()
    finally:
        await nodes.stop()
