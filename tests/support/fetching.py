"""Fetch requests, and views of their responses, for tests of Fetch over `tests.support.data_rig`."""

import asyncio
from typing import Any

from odradek.broker.apis import fetch
from odradek.protocol.batch import end_txn_marker, iter_batches
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from odradek.storage.producers.entry import Origin
from tests.support.data_rig import NOW_MS, Rig, batch, outcome

VERSION = 12


def request(*rows: tuple[str, int, int], **fields: Any) -> FetchRequest:
    """Return a Fetch request. Each of `rows` is `(topic, partition, offset)`."""
    limit = fields.pop("partition_bytes", 1_000_000)
    epoch = fields.pop("leader_epoch", -1)
    fetched_epoch = fields.pop("fetched_epoch", -1)
    topics = [
        FetchTopic(topic, partitions=[FetchPartition(index, epoch, offset, fetched_epoch, partition_max_bytes=limit)])
        for topic, index, offset in rows
    ]
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "topics": topics, **fields})


def partition_responses(response: FetchResponse) -> list[PartitionData]:
    return [partition for topic in response.responses for partition in topic.partitions]


def errors(response: FetchResponse) -> list[ErrorCode]:
    return [ErrorCode(partition.error_code) for partition in partition_responses(response)]


def offsets(partition: PartitionData) -> list[int]:
    assert partition.records is not None
    return [header.base_offset for header, _ in iter_batches(partition.records)]


async def read(rig: Rig, fetch_request: FetchRequest, version: int = VERSION) -> FetchResponse:
    response: FetchResponse = await outcome(fetch.handle(rig.context(1, version), fetch_request))
    return response


def append(rig: Rig, *values: bytes, index: int = 0, **producer: Any) -> None:
    rig.partition("t", index).append(batch(*values, **producer), origin=Origin.CLIENT, now_ms=NOW_MS)


def end(rig: Rig, producer_id: int, *, commit: bool, epoch: int = 0, index: int = 0) -> None:
    marker = end_txn_marker(
        producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0, commit=commit, timestamp=NOW_MS
    )
    rig.partition("t", index).append(marker, origin=Origin.COORDINATOR, now_ms=NOW_MS, transaction_version=0)


def in_transaction(rig: Rig, producer_id: int, sequence: int, index: int = 0) -> None:
    partition = rig.partition("t", index)
    guard = partition.log.producers.start_verification(producer_id, 0, sequence, supports_epoch_bump=False)
    data = batch(b"t", producer_id=producer_id, epoch=0, sequence=sequence, transactional=True)
    partition.append(data, origin=Origin.CLIENT, now_ms=NOW_MS, guard=guard)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
