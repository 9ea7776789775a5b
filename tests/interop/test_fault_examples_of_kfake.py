"""Examples of kfake, the broker for tests of franz-go, with the rules of `kafka.faults`.

Its anchors are `ControlKey`, `KeepControl`, `DropControl`, `SleepControl` and `CurrentNode`, with the example program
`testing_with_kfake`, and the tests of its faults. docs/testing.md has a table of them. The name of a test begins with
the name in kfake.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek import client
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from odradek.testing.faults import delay, respond
from odradek.testing.kafka import Kafka
from odradek.testing.kafka_cluster import KafkaCluster
from tests.support.raw_client import ConnectionLost, RawClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from odradek.testing.rules import Action, Request

pytestmark = [pytest.mark.interop, pytest.mark.full]

LONGEST_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture
def kafka(cluster: KafkaCluster) -> Iterator[Kafka]:
    yield Kafka(cluster, "test")
    errors = cluster.faults.errors
    cluster.reset()
    assert errors == []


@asynccontextmanager
async def connection(kafka: Kafka) -> AsyncIterator[RawClient]:
    host, port = kafka.bootstrap.split(",")[0].split(":")
    raw = await RawClient.connect(host, int(port))
    try:
        yield raw
    finally:
        raw.close()
        await asyncio.sleep(0)  # the transport closes


async def list_offsets_code(raw: RawClient, topic: str) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    response = await raw.call(request, 6, timeout=LONGEST_S)
    return int(response.topics[0].partitions[0].error_code)


async def wait_for_coordinators(raw: RawClient, *groups: str) -> None:
    """Wait until the coordinators of `groups` are loaded. The first request for one makes the offsets topic."""
    await raw.call(FindCoordinatorRequest(key_type=0, coordinator_keys=list(groups)), 4, timeout=LONGEST_S)
    loading = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
    async with asyncio.timeout(LONGEST_S):
        for group in groups:
            request = HeartbeatRequest(group_id=group, generation_id=-1)
            while (await raw.call(request, 4, timeout=LONGEST_S)).error_code in loading:
                await asyncio.sleep(0.01)


async def commit_codes(raw: RawClient, group: str, topic: str, partitions: int = 1) -> list[int]:
    offsets = [OffsetCommitRequestPartition(number, 7) for number in range(partitions)]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=offsets)])
    response = await raw.call(request, 8, timeout=LONGEST_S)
    return [each.error_code for each in response.topics[0].partitions]


def producer(kafka: Kafka, **settings: Any) -> Producer:
    return Producer(kafka.client_config("confluent-kafka") | {"retry.backoff.ms": 20} | settings)


def produce(kafka: Kafka, topic: str, value: bytes, partition: int = 0, **settings: Any) -> str:
    """Produce one record, and return the name of its error, or ""."""
    errors: list[str] = []
    sender = producer(kafka, **settings)
    sender.produce(
        topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error.name() if error else "")
    )
    sender.flush(LONGEST_S)
    [error] = errors
    return error


# ---- the example program --------------------------------------------------------------------------------------------


def test_inject_error_by_a_response_of_the_control_function(kafka: Kafka) -> None:
    topic = kafka.topic()

    def refuse(request: Request) -> Action:
        [(_, partition)] = request.partitions
        [data] = request.fields["topic_data"]
        refused = PartitionProduceResponse(index=partition, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        responses = [TopicProduceResponse(data["name"], UUID(data["topic_id"]), [refused])]
        return respond(ProduceResponse(responses=responses))

    rule = kafka.faults.on("Produce", topic=topic, times=1).call(refuse)
    assert produce(kafka, topic, b"hello") == ""  # the client has sent it again
    assert (rule.injected, rule.matched) == (1, 2)
    assert kafka.values(topic) == [b"hello"]


def test_observe_counts_each_request_type(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=3)
    observed = kafka.faults.on().observe()
    for number in range(10):
        assert produce(kafka, topic, b"%d" % number) == ""
    assert len(kafka.values(topic)) == 10
    counts = [request.api for request in observed.requests]
    assert counts.count("Produce") == 10
    assert {"ApiVersions", "Metadata", "Fetch"} <= set(counts)
    assert kafka.faults.log == []


def test_sleep_holds_the_first_fetch_until_a_produce(kafka: Kafka) -> None:
    topic = kafka.topic()
    produced = kafka.faults.on("Produce", topic=topic).observe()
    held = kafka.faults.on("Fetch", topic=topic, nth=1).hold(until=produced)
    consumer = Consumer(kafka.client_config("confluent-kafka") | {"group.id": kafka.group()})
    consumer.assign([TopicPartition(topic, 0, 0)])
    held.wait()
    assert consumer.poll(0.1) is None
    assert produce(kafka, topic, b"coordinated") == ""
    message = consumer.poll(LONGEST_S)
    assert message is not None
    assert message.value() == b"coordinated"
    assert held.injected == 1
    consumer.close()


# ---- control functions ----------------------------------------------------------------------------------------------


async def test_control_key_functions_run_in_their_order_until_one_handles_the_request(kafka: Kafka) -> None:
    topic, order = kafka.topic(), []

    def first(_request: Request) -> None:
        order.append("first")

    def second(_request: Request) -> Action:
        order.append("second")
        return delay(1)

    def third(_request: Request) -> None:
        order.append("third")

    for function in (first, second, third):
        kafka.faults.on("ListOffsets").call(function)
    async with connection(kafka) as raw:
        assert await list_offsets_code(raw, topic) == 0
    assert order == ["first", "second"]


async def test_keep_control_handles_all_requests_and_its_absence_one(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.faults.on("ListOffsets", times=1).error("POLICY_VIOLATION")
    kept = kafka.faults.on("ListOffsets").error("INVALID_REQUEST")
    async with connection(kafka) as raw:
        codes = [await list_offsets_code(raw, topic) for _ in range(4)]
    assert codes == [ErrorCode.POLICY_VIOLATION, *[ErrorCode.INVALID_REQUEST] * 3]
    assert kept.injected == 3


async def test_drop_control_serves_canned_metadata_until_it_is_dropped(kafka: Kafka) -> None:
    topic, is_stopped = kafka.topic(), asyncio.Event()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])

    def canned(_request: Request) -> Action | None:
        if is_stopped.is_set():
            rule.remove()
            return None
        return respond(stale)

    async with connection(kafka) as raw:
        stale: MetadataResponse = await raw.call(request, 12, timeout=LONGEST_S)
        kafka.cluster.run(lambda cluster: client.add_partitions(cluster, topic, 4))
        rule = kafka.faults.on("Metadata", client_id="raw").call(canned)
        counts = []
        for _ in range(2):
            counts += [len((await raw.call(request, 12, timeout=LONGEST_S)).topics[0].partitions) for _ in range(2)]
            is_stopped.set()
    assert counts == [1, 1, 4, 4]
    assert rule.matched == 3


async def test_error_of_a_control_function_closes_the_connection(kafka: Kafka) -> None:
    kafka.faults.on("ListOffsets", client_id="raw").disconnect("before")
    async with connection(kafka) as raw:
        with pytest.raises((ConnectionLost, EOFError, OSError)):
            await list_offsets_code(raw, "any")


async def test_no_response_of_a_control_function_lets_the_client_time_out(kafka: Kafka) -> None:
    rule = kafka.faults.on("ListOffsets", client_id="raw").drop_request()
    async with connection(kafka) as raw:
        sent = asyncio.create_task(list_offsets_code(raw, "any"))
        await asyncio.to_thread(rule.wait)
        assert not sent.done()
        sent.cancel()


async def test_hold_skips_and_counts_requests(kafka: Kafka) -> None:
    """Take the second and third request with a condition, as `hold` of the tests of recreated topics."""
    topics = [kafka.topic(), kafka.topic()]
    held = kafka.faults.on("ListOffsets", nth=2, times=2, when=lambda request: topics[0] in request.topics).hold()
    async with connection(kafka) as raw, connection(kafka) as other:
        assert await list_offsets_code(raw, topics[0]) == 0
        assert await list_offsets_code(raw, topics[1]) == 0
        waiting = [asyncio.create_task(list_offsets_code(each, topics[0])) for each in (raw, other)]
        await asyncio.to_thread(held.wait, 2)
        assert not any(task.done() for task in waiting)
        held.release()
        assert await asyncio.gather(*waiting) == [0, 0]
        assert await list_offsets_code(raw, topics[0]) == 0
    assert (held.injected, held.matched) == (2, 4)


async def test_counter_stops(kafka: Kafka) -> None:
    topic = kafka.topic()
    counter = kafka.faults.on("ListOffsets").observe()
    async with connection(kafka) as raw:
        await list_offsets_code(raw, topic)
        counter.remove()
        await list_offsets_code(raw, topic)
    assert counter.seen == 1


def test_recreation_produce_inflight(kafka: Kafka) -> None:
    """Hold a produce while its topic is recreated. The record is not written to the new topic under the old id."""
    topic = kafka.topic()
    assert produce(kafka, topic, b"v0") == ""
    sender = producer(kafka, **{"message.timeout.ms": 30_000})
    held = kafka.faults.on("Produce", topic=topic, nth=1).hold()
    sender.produce(topic, b"h0", partition=0)
    sender.poll(0)
    held.wait()

    async def recreate(cluster: client.Cluster) -> None:
        await client.delete_topic(cluster, topic)
        await client.create_topic(cluster, topic)

    kafka.cluster.run(recreate)
    held.release()
    sender.flush(LONGEST_S)
    assert produce(kafka, topic, b"n1") == ""
    assert kafka.values(topic)[-1] == b"n1"
    assert b"v0" not in kafka.values(topic)


# ---- tests of faults ------------------------------------------------------------------------------------------------


def test_fault_partition(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=3)
    rule = kafka.faults.on("Produce", topic=topic, partition=2).error("POLICY_VIOLATION")
    assert [produce(kafka, topic, b"v", partition) for partition in range(3)] == ["", "", "POLICY_VIOLATION"]
    assert rule.injected == 1


async def test_fault_group_commits(kafka: Kafka) -> None:
    topic, group, other = kafka.topic(partitions=3), kafka.group(), kafka.group()
    rule = kafka.faults.on("OffsetCommit", group=group).error("NOT_COORDINATOR")
    async with connection(kafka) as raw:
        await wait_for_coordinators(raw, group, other)
        assert await commit_codes(raw, group, topic, 3) == [ErrorCode.NOT_COORDINATOR] * 3
        assert await commit_codes(raw, other, topic, 3) == [0, 0, 0]
    assert rule.injected == 1


async def test_fault_group_heartbeat(kafka: Kafka) -> None:
    rule = kafka.faults.on("Heartbeat", group="g").error("COORDINATOR_LOAD_IN_PROGRESS")
    async with connection(kafka) as raw:
        codes = [
            (await raw.call(HeartbeatRequest(group_id=group, generation_id=-1), 4, timeout=LONGEST_S)).error_code
            for group in ("g", "other")
        ]
    assert codes[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS != codes[1]
    assert rule.injected == 1


async def test_fault_describe_groups_picks_one_group_of_a_request(kafka: Kafka) -> None:
    topic, group, other = kafka.topic(), kafka.group(), kafka.group()

    def refuse_one(response: DescribeGroupsResponse) -> DescribeGroupsResponse:
        for each in response.groups:
            if each.group_id == group:
                each.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return response

    async with connection(kafka) as raw:
        await wait_for_coordinators(raw, group, other)
        for each in (group, other):
            assert await commit_codes(raw, each, topic) == [0]
        kafka.faults.on("DescribeGroups", group=group).rewrite(refuse_one)
        response = await raw.call(DescribeGroupsRequest(groups=[group, other]), 5, timeout=LONGEST_S)
    codes = {each.group_id: each.error_code for each in response.groups}
    assert codes == {group: ErrorCode.GROUP_AUTHORIZATION_FAILED, other: ErrorCode.NONE}


async def test_fault_txn_id(kafka: Kafka) -> None:
    rule = kafka.faults.on(transactional_id="x").error("PRODUCER_FENCED")
    async with connection(kafka) as raw:
        init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=10_000)
        assert (await raw.call(init, 4, timeout=LONGEST_S)).error_code == ErrorCode.PRODUCER_FENCED
    assert rule.injected == 1


async def test_fault_node() -> None:
    with KafkaCluster(brokers=2) as cluster:
        kafka = Kafka(cluster, "test")
        topic = kafka.topic()
        cluster.move_leader(topic, to=1)
        kafka.faults.on("ListOffsets", broker=2).error("POLICY_VIOLATION")
        own = kafka.faults.on("ListOffsets", broker=1, nth=2).error("POLICY_VIOLATION")
        async with connection(kafka) as raw:
            assert [await list_offsets_code(raw, topic) for _ in range(2)] == [0, ErrorCode.POLICY_VIOLATION]
        assert [each.request.broker for each in own.injections] == [1]  # CurrentNode


async def test_fault_find_coordinator(kafka: Kafka) -> None:
    kafka.faults.on("FindCoordinator", group="g").error("COORDINATOR_NOT_AVAILABLE")
    kafka.faults.on("FindCoordinator", transactional_id="x").error("COORDINATOR_LOAD_IN_PROGRESS")

    async def find(raw: RawClient, kind: int, key: str) -> int:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        response = await raw.call(request, 4, timeout=LONGEST_S)
        return int(response.coordinators[0].error_code)

    async with connection(kafka) as raw:
        assert await find(raw, 0, "g") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await find(raw, 1, "x") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS not in {await find(raw, 0, "x"), await find(raw, 1, "g")}


async def test_fault_selector_not_carried(kafka: Kafka) -> None:
    rule = kafka.faults.on(topic=kafka.topic()).error("UNKNOWN_SERVER_ERROR")
    async with connection(kafka) as raw:
        response = await raw.call(HeartbeatRequest(group_id="g", generation_id=-1), 4, timeout=LONGEST_S)
    assert response.error_code != ErrorCode.UNKNOWN_SERVER_ERROR
    assert rule.injected == 0


async def test_fault_count_and_batch(kafka: Kafka) -> None:
    topic = kafka.topic()
    once = kafka.faults.on("ListOffsets", topic=topic, times=1).error("POLICY_VIOLATION")
    later = kafka.faults.on("ListOffsets", topic=topic).error("INVALID_REQUEST")
    async with connection(kafka) as raw:
        codes = [await list_offsets_code(raw, topic) for _ in range(3)]
        later.remove()
        later.remove()
        once.remove()
        assert await list_offsets_code(raw, topic) == 0
    assert codes == [ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    assert (once.injected, later.injected) == (1, 2)


async def test_fault_wait(kafka: Kafka) -> None:
    topic = kafka.topic()
    rule = kafka.faults.on("ListOffsets", topic=topic, times=2).error("POLICY_VIOLATION")
    async with connection(kafka) as raw:
        with pytest.raises(TimeoutError):
            await asyncio.to_thread(rule.wait, 1, 0.05)
        for count in (1, 2):
            await list_offsets_code(raw, topic)
            await asyncio.to_thread(rule.wait, count)
        assert await list_offsets_code(raw, topic) == 0


async def test_fault_after_apply_offset_commit(kafka: Kafka) -> None:
    topic, group = kafka.topic(), kafka.group()
    kafka.faults.on("OffsetCommit", group=group, times=1).error("REQUEST_TIMED_OUT", executed=True)
    async with connection(kafka) as raw:
        await wait_for_coordinators(raw, group)
        assert await commit_codes(raw, group, topic) == [ErrorCode.REQUEST_TIMED_OUT]
    offsets = await asyncio.to_thread(kafka.cluster.committed_offsets, group)
    assert offsets == {(topic, 0): 7}


async def test_fault_after_apply_create_topics(kafka: Kafka) -> None:
    name = kafka.group("topic")
    kafka.faults.on("CreateTopics", topic=name).error("REQUEST_TIMED_OUT", executed=True)
    request = CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1)], timeout_ms=10_000)
    async with connection(kafka) as raw:
        response = await raw.call(request, 7, timeout=LONGEST_S)
    assert [each.error_code for each in response.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    assert await asyncio.to_thread(kafka.values, name) == []


@pytest.mark.parametrize(("idempotent", "copies"), [(True, 1), (False, 2)])
def test_fault_after_apply_produce(kafka: Kafka, idempotent: bool, copies: int) -> None:
    topic = kafka.topic()
    rule = kafka.faults.on("Produce", topic=topic, times=1).error("REQUEST_TIMED_OUT", executed=True)
    assert produce(kafka, topic, b"v", **{"enable.idempotence": idempotent}) == ""
    assert rule.injected == 1
    assert kafka.values(topic) == [b"v"] * copies


async def test_fault_from_control(kafka: Kafka) -> None:
    """A function adds a fault, which concerns the requests after it."""
    topic, seen = kafka.topic(), []

    def install(request: Request) -> None:
        seen.append(request)
        if len(seen) == 2:
            kafka.faults.on("ListOffsets", topic=topic).error("POLICY_VIOLATION")

    kafka.faults.on("ListOffsets").call(install)
    async with connection(kafka) as raw:
        assert [await list_offsets_code(raw, topic) for _ in range(3)] == [0, 0, ErrorCode.POLICY_VIOLATION]
