"""Client quotas with extreme values, as any client can set them: the node throttles the client and no other one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from odradek.broker.process.clock import SystemClock
from odradek.protocol.batch import build_batch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.raw_client import RawClient
from tests.support.running_node import running

if TYPE_CHECKING:
    from pathlib import Path

INT32_MAX = 2**31 - 1
RECORD_BYTES = 900_000
BATCHES = 4
"""Batches per Produce request. At one byte per second, their throttle time exceeds an int32."""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("producer_byte_rate", 1.0),
        ("consumer_byte_rate", 2.0**63 - 2**11),
        ("request_percentage", 5e-324),
        ("request_percentage", math.inf),
        ("controller_mutation_rate", 5e-324),
        ("controller_mutation_rate", 1e-300),
        ("controller_mutation_rate", math.inf),
    ],
)
async def test_client_with_an_extreme_quota_receives_responses(tmp_path: Path, key: str, value: float) -> None:
    async with running(tmp_path) as node:
        entry = RequestEntryData([RequestEntityData("client-id", "limited")], [OpData(key, value)])
        altered = await node.call(AlterClientQuotasRequest([entry]), 1)
        assert [result.error_code for result in altered.entries] == [ErrorCode.NONE]
        await node.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 5_000), 7)
        records = build_batch([(b"k", bytes(RECORD_BYTES), SystemClock().wall_ms(), ())])
        data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, records)]) for _ in range(BATCHES)]
        for request, version in (
            (ProduceRequest(None, -1, 5_000, data), 12),
            (CreateTopicsRequest([CreatableTopic("a", 60, 1)], 5_000), 7),
            (CreateTopicsRequest([CreatableTopic("b", 60, 1)], 5_000), 7),
            (CreateTopicsRequest([CreatableTopic("c", 60, 1)], 5_000), 5),
            (MetadataRequest([]), 12),
        ):
            limited = await RawClient.connect("127.0.0.1", node.node.listeners[0].port, client_id="limited")
            response = await limited.call(request, version, timeout=20)
            assert 0 <= response.throttle_time_ms <= INT32_MAX
            assert getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NONE
            limited.close()
            assert node.unexpected == []
        assert (await node.call(MetadataRequest([]), 12)).throttle_time_ms == 0
