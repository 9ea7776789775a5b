"""A request that names many new partitions creates their logs in slices."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.apis import delete_records, list_offsets, offset_for_leader_epoch, produce
from odradek.broker.partition.new_logs import LOGS_PER_TURN
from odradek.broker.partition.registry import CREATE_LOG_COST, ROLE_CHANGES_PER_SLICE
from odradek.broker.requests.api import Ordered
from odradek.protocol import special_values
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.data_rig import Rig, batch, outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIRST_SLICE = ROLE_CHANGES_PER_SLICE // CREATE_LOG_COST
"""Logs that the registry creates before the request."""


async def with_missing_logs(folder: Path, missing: int) -> Rig:
    """Return a broker that has not created the logs of the last partitions of topic "t" yet."""
    rig = Rig(folder)
    rig.topic("t", FIRST_SLICE + missing)
    for task in rig.tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert len(rig.logs.logs) == FIRST_SLICE
    return rig


def send_produce(rig: Rig, count: int) -> Any:
    data = [PartitionProduceData(index, batch()) for index in range(count)]
    topics = [TopicProduceData("t", partition_data=data)]
    return produce.handle(rig.context(0, 12), ProduceRequest(None, 1, 60_000, topics))


def send_list_offsets(rig: Rig, count: int) -> Any:
    partitions = [ListOffsetsPartition(index, -1, special_values.LATEST) for index in range(count)]
    request = ListOffsetsRequest(special_values.CONSUMER_REPLICA_ID, 0, [ListOffsetsTopic("t", partitions)])
    return list_offsets.handle(rig.context(2, 11), request)


def send_delete_records(rig: Rig, count: int) -> Any:
    partitions = [DeleteRecordsPartition(index, 0) for index in range(count)]
    request = DeleteRecordsRequest([DeleteRecordsTopic("t", partitions)], 60_000)
    return delete_records.handle(rig.context(21, 2), request)


def send_offset_for_leader_epoch(rig: Rig, count: int) -> Any:
    partitions = [OffsetForLeaderPartition(index) for index in range(count)]
    request = OffsetForLeaderEpochRequest(special_values.CONSUMER_REPLICA_ID, [OffsetForLeaderTopic("t", partitions)])
    return offset_for_leader_epoch.handle(rig.context(23, 4), request)


@pytest.mark.parametrize("send", [send_produce, send_list_offsets, send_delete_records, send_offset_for_leader_epoch])
async def test_logs_of_many_new_partitions_are_created_in_slices(
    tmp_path: Path, send: Callable[[Rig, int], Any]
) -> None:
    """In one piece, a request for 1,000 new partitions would hold the event loop for 0.2 s."""
    count = FIRST_SLICE + 5 * LOGS_PER_TURN
    rig = await with_missing_logs(tmp_path, 5 * LOGS_PER_TURN)
    handled = send(rig, count)
    assert isinstance(handled, Ordered), "later requests of the connection wait"
    responding = asyncio.ensure_future(outcome(handled))
    logs = [len(rig.logs.logs)]
    while not responding.done():
        await asyncio.sleep(0)
        logs.append(len(rig.logs.logs))
    assert (logs[0], logs[-1]) == (FIRST_SLICE, count)
    assert max(after - before for before, after in pairwise(logs)) <= LOGS_PER_TURN
    response = responding.result()
    results = response.responses[0].partition_responses if send is send_produce else response.topics[0].partitions
    assert [ErrorCode(result.error_code) for result in results] == [ErrorCode.NONE] * count


async def test_request_for_few_new_partitions_is_handled_in_one_piece(tmp_path: Path) -> None:
    rig = await with_missing_logs(tmp_path, LOGS_PER_TURN)
    assert isinstance(send_list_offsets(rig, FIRST_SLICE + LOGS_PER_TURN), ListOffsetsResponse)
    assert len(rig.logs.logs) == FIRST_SLICE + LOGS_PER_TURN
