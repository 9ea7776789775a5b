"""Requests with as many elements as possible: the broker's memory stays bounded and another client is served."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from benchmarks.floods import Broker
from benchmarks.hostile import SMALL, Witness, exchange, run_case, served
from odradek.broker.dispatch.request_limits import CHARGE_BYTES_MAX
from odradek.protocol.batch import build_batch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.primitives import unsigned_varint
from tests.support.hostile_values import array_paths, huge
from tests.support.raw_client import RawClient, encode_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

MIB = 2**20
REQUEST_BYTES = 200_000
GROWTH_MIB_MAX = 2 * CHARGE_BYTES_MAX // MIB
"""Maximum growth of the broker in MiB: one decoded request, its response, and memory that the allocator keeps."""
PARTITIONS = 3_000
TOPICS, PARTITIONS_PER_TOPIC = 3, 700


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    running = Broker(tmp_path)
    try:
        await running.ready()
        yield running
    finally:
        code = running.stop()
    assert code == 0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, float]]:
    """Start a broker for all tests that leave nothing in it. Yield it, and its memory in MiB before the first test."""
    running = Broker(tmp_path_factory.mktemp("shared"))
    try:
        asyncio.run(running.ready())
        yield running, running.resident_mib
    finally:
        code = running.stop()
    assert code == 0


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """Return a request with a flexible header without client id."""
    content = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\x00\x00\x00\x01\xff\xff\x00" + body
    return len(content).to_bytes(4, "big") + content


def topic(partitions: int) -> bytes:
    """Return a topic of an OffsetFetch request."""
    return b"\x02t" + unsigned_varint(partitions + 1) + bytes(4 * partitions) + b"\x00"


async def test_huge_arrays_of_all_apis_leave_the_broker_healthy(broker: Broker) -> None:
    witness = Witness(await broker.connect("witness"))
    before_mib = broker.resident_mib
    for cls, version in await served(broker):
        for path in array_paths(cls, version):
            await run_case(broker, witness, huge(cls, version, path, REQUEST_BYTES))
            assert broker.resident_mib - before_mib < GROWTH_MIB_MAX, (cls.NAME, [row.name for row in path])
    witness.take_longest_ms()  # raises if the witness received an error
    await witness.stop()


@pytest.mark.parametrize(
    ("name", "request_frame"),
    [
        ("FindCoordinator of 900,000 empty keys", frame(10, 4, b"\x00" + unsigned_varint(900_001) + b"\x01" * 900_000)),
        (
            "DescribeGroups of 900,000 empty groups",
            frame(15, 5, unsigned_varint(900_001) + b"\x01" * 900_000 + b"\x00"),
        ),
        (
            "ApiVersions of 5,000,000 tagged fields",
            frame(18, 3, b"\x02x\x02x" + unsigned_varint(5_000_000) + bytes(10_000_000)),
        ),
        ("Metadata of 5,000,000 topics", frame(3, 12, unsigned_varint(5_000_001) + bytes(10_000_000))),
        ("Metadata with a frame of 90 MB", (90_000_000).to_bytes(4, "big") + b"\x00\x03\x00\x0c" + bytes(64)),
        (
            "OffsetFetch of 1,090,000 partitions in 8 MB: 58 MiB of elements, and the frame",
            frame(9, 7, b"\x02g\x03" + topic(1_000_000) + topic(90_000) + b"\x00\x00" + bytes(3_600_000)),
        ),
        ("OffsetFetch of 2,000,000 topics", frame(9, 7, b"\x02g" + unsigned_varint(2_000_001) + b"\x01" * 6_000_000)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_request_beyond_its_limit_closes_only_its_connection(
    shared: tuple[Broker, float], name: str, request_frame: bytes
) -> None:
    broker, before_mib = shared
    client = await broker.connect("another")
    await client.call(SMALL, 4)
    assert await asyncio.to_thread(exchange, broker.address, request_frame) == "connection closed", name
    await client.call(SMALL, 4)
    assert broker.resident_mib - before_mib < GROWTH_MIB_MAX
    client.close()


async def test_large_request_keeps_the_order_of_its_connection(shared: tuple[Broker, float]) -> None:
    """The response to a request that is decoded and handled in parts precedes those to later requests."""
    broker, _ = shared
    partitions = [ListOffsetsPartition(index, -1, timestamp=-1) for index in range(PARTITIONS)]
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("missing", partitions)])
    client: RawClient = await broker.connect("order")
    large, small = client.send(request, 7), client.send(SMALL, 4)  # RawClient fails if a response is out of order
    response = await large
    await small
    client.close()
    [topic] = response.topics  # type: ignore[attr-defined]
    assert [partition.partition_index for partition in topic.partitions] == list(range(PARTITIONS))
    assert len(encode_request(request, 7, 1, "order")) > PARTITIONS


async def test_metadata_of_all_topics_in_slices_equals_the_metadata_of_each_topic(broker: Broker) -> None:
    client = await broker.connect("metadata")
    names = [f"topic-{number}" for number in range(TOPICS)]
    created = await client.call(
        CreateTopicsRequest([CreatableTopic(name, PARTITIONS_PER_TOPIC, 1) for name in names], 30_000), 7
    )
    assert [topic.error_code for topic in created.topics] == [0] * TOPICS
    each = [(await client.call(MetadataRequest([MetadataRequestTopic(name=name)]), 12)).topics for name in names]
    whole = (await client.call(MetadataRequest(None), 12)).topics
    by_name = {topic.name: topic for topic in whole}
    assert [[by_name[name]] for name in names] == each
    assert [len(topic.partitions) for topic in by_name.values()] == [PARTITIONS_PER_TOPIC] * TOPICS
    client.close()


async def test_produce_in_parts_appends_the_last_batch_of_each_partition(broker: Broker) -> None:
    """A refused part does not change the results of the others. Both batches of a partition are in different parts."""
    client = await broker.connect("producer")
    count = PARTITIONS // 4
    await client.call(CreateTopicsRequest([CreatableTopic("t", count, 1)], 30_000), 7)
    one, two = build_batch([(None, b"v", 0, ())]), build_batch([(None, b"v", 0, ())] * 2)
    data = [
        entry
        for records in (one, two)
        for index in range(count)
        for entry in (
            TopicProduceData(f"missing-{index}", partition_data=[PartitionProduceData(0, records)]),
            TopicProduceData("t", partition_data=[PartitionProduceData(index, records)]),
        )
    ]
    response = await client.call(ProduceRequest(None, -1, 30_000, data), 9)
    results = {topic.name: topic.partition_responses for topic in response.responses}
    assert len(response.responses) == len(results) == count + 1
    written = results.pop("t")
    assert [(each.index, each.error_code, each.base_offset) for each in written] == [
        (index, ErrorCode.NONE, 0) for index in range(count)
    ]
    assert {each.error_code for [each] in results.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    ends = await client.call(
        ListOffsetsRequest(
            -1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(index, -1, timestamp=-1) for index in range(count)])]
        ),
        7,
    )
    assert [each.offset for each in ends.topics[0].partitions] == [2] * count
    client.close()
