"""ListOffsets, OffsetForLeaderEpoch and DescribeProducers over real logs."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.apis import describe_producers, list_offsets, offset_for_leader_epoch
from odradek.broker.dispatch.large_requests import LargeRequests
from odradek.broker.dispatch.request_metrics import ApiMetrics
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.requests.listener import BROKER, CLIENT
from odradek.broker.requests.splitting import ELEMENTS_PER_PART
from odradek.broker.security.authorizer import AllowAll
from odradek.client_shares import Client
from odradek.cluster.authorizer import AclOperation
from odradek.protocol import special_values
from odradek.protocol.batch import build_batch
from odradek.protocol.codec import SlicedEncoding, decode, encode
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.extensions import (
    COUNT,
    DESCRIBED_ADDRESS_TAG,
    DESCRIBED_CLIENT_ID_TAG,
    DESCRIBED_IDLE_TAG,
    EXPIRE_TAG,
    EXPIRED_PRODUCER,
    IDLE,
)
from odradek.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
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
from odradek.protocol.records.metadata import PartitionChangeRecord
from odradek.storage.producers.entry import Origin
from tests.support import broker_context
from tests.support.data_rig import EIO, NOW_MS, Rig, batch, outcome

E = ErrorCode
CONSUMER, DEBUGGER = -1, -2
HEADER_BYTES = 5
"""Bytes of a response header in version 1: the correlation id, and no tagged fields."""


def append(rig: Rig, *timestamps: int, **producer: Any) -> None:
    data = build_batch([(None, b"v", timestamp, ()) for timestamp in timestamps], **producer)
    rig.partition().append(data, origin=Origin.CLIENT, now_ms=NOW_MS)


async def list_offset(
    rig: Rig, timestamp: int, *, isolation: int = 0, version: int = 11, replica: int = CONSUMER, epoch: int = -1
) -> tuple[ErrorCode, int, int, int]:
    topics = [ListOffsetsTopic("t", [ListOffsetsPartition(0, epoch, timestamp)])]
    list_request = ListOffsetsRequest(replica, isolation, topics)
    response = await outcome(list_offsets.handle(rig.context(2, version), list_request))
    partition = response.topics[0].partitions[0]
    return ErrorCode(partition.error_code), partition.timestamp, partition.offset, partition.leader_epoch


async def test_list_offsets_of_log_ends_and_timestamps(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, NOW_MS, NOW_MS + 5)
    append(rig, NOW_MS + 9, NOW_MS + 3)
    expected = {
        special_values.EARLIEST: (-1, 0, 0),
        special_values.EARLIEST_LOCAL: (-1, 0, 0),
        special_values.LATEST: (-1, 4, 0),
        special_values.MAX_TIMESTAMP: (NOW_MS + 9, 2, 0),
        special_values.LATEST_TIERED: (-1, -1, -1),
        special_values.EARLIEST_PENDING_UPLOAD: (-1, -1, -1),
        0: (NOW_MS, 0, 0),
        NOW_MS + 1: (NOW_MS + 5, 1, 0),
        NOW_MS + 6: (NOW_MS + 9, 2, 0),
        NOW_MS + 10: (-1, -1, -1),
    }
    for timestamp, expected_result in expected.items():
        assert await list_offset(rig, timestamp) == (E.NONE, *expected_result), timestamp


async def test_list_offsets_of_a_log_end_completes_in_stage_one(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    list_request = ListOffsetsRequest(
        CONSUMER, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, special_values.LATEST)])]
    )
    assert isinstance(list_offsets.handle(rig.context(2, 11), list_request), ListOffsetsResponse)


async def test_list_offsets_with_read_committed_ends_at_the_last_stable_offset(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, NOW_MS)
    guard = rig.partition().log.producers.start_verification(7, 0, 0, supports_epoch_bump=False)
    data = batch(producer_id=7, epoch=0, sequence=0, transactional=True)
    rig.partition().append(data, origin=Origin.CLIENT, now_ms=NOW_MS, guard=guard)
    append(rig, NOW_MS + 50)
    assert (await list_offset(rig, special_values.LATEST))[2] == 3
    assert (await list_offset(rig, special_values.LATEST, isolation=1))[2] == 1
    assert (await list_offset(rig, NOW_MS + 50))[2] == 2
    assert (await list_offset(rig, NOW_MS + 50, isolation=1))[2] == -1


async def test_list_offsets_of_replicas_and_debug_consumers_returns_the_log_end(tmp_path: Path) -> None:
    rig = Rig(tmp_path, manual_commits=True)
    rig.topic("t")
    append(rig, NOW_MS)
    assert [
        (await list_offset(rig, special_values.LATEST, replica=replica))[2] for replica in (CONSUMER, DEBUGGER, 2)
    ] == [
        0,
        1,
        1,
    ]


async def test_offset_requests_with_an_unregistered_replica_id_are_refused(tmp_path: Path) -> None:
    rig = Rig(tmp_path, manual_commits=True)
    rig.topic("t")
    append(rig, NOW_MS)
    for timestamp in (special_values.LATEST, special_values.EARLIEST, 0):
        assert await list_offset(rig, timestamp, replica=9) == (E.NOT_LEADER_OR_FOLLOWER, -1, -1, -1)
    errors = []
    for replica in (2, 9):
        topics = [OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0)])]
        request = OffsetForLeaderEpochRequest(replica, topics)
        response = await outcome(offset_for_leader_epoch.handle(rig.context(23, 3), request))
        errors.append(response.topics[0].partitions[0].error_code)
    assert errors == [E.NONE, E.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize(("version", "error"), [(4, E.LEADER_NOT_AVAILABLE), (5, E.OFFSET_NOT_AVAILABLE)])
async def test_latest_offset_of_a_new_leader_is_not_available_yet(
    tmp_path: Path, version: int, error: ErrorCode
) -> None:
    rig = Rig(tmp_path, manual_commits=True)
    topic_id = rig.topic("t")
    append(rig, NOW_MS, NOW_MS)
    rig.commits[0].advance(1)
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1))
    assert (await list_offset(rig, special_values.LATEST, version=version))[0] is error
    assert (await list_offset(rig, NOW_MS + 1, version=version))[0] is error
    assert (await list_offset(rig, NOW_MS, version=version))[:3] == (E.NONE, NOW_MS, 0)
    assert (await list_offset(rig, special_values.EARLIEST, version=version))[0] is E.NONE
    rig.commits[1].advance()
    assert (await list_offset(rig, special_values.LATEST, version=version))[2] == 2


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99)])
async def test_special_timestamp_in_an_older_version_is_unsupported(tmp_path: Path, timestamp: int, since: int) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    for version in (1, since - 1, since):
        if version <= 11:
            error = (await list_offset(rig, timestamp, version=version))[0]
            assert error is (E.UNSUPPORTED_VERSION if version < since else E.NONE)


async def test_each_partition_of_list_offsets_has_its_own_error(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.services.authorizer = broker_context.Deny((AclOperation.DESCRIBE, "secret"))
    topic_id = rig.topic("t", 3)
    rig.topic("elsewhere", leader=2, replicas=(2,), number=101)
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1))
    rig.partition("t", 2).take_offline(OSError(EIO, "injected"))
    rows = [
        ("t", 0, 0),
        ("t", 1, -1),
        ("t", 1, -1),
        ("t", 2, -1),
        ("t", 9, -1),
        ("secret", 0, -1),
        ("elsewhere", 0, -1),
    ]
    topics = [ListOffsetsTopic(name, [ListOffsetsPartition(index, epoch, -1)]) for name, index, epoch in rows]
    response = await outcome(list_offsets.handle(rig.context(2, 11), ListOffsetsRequest(CONSUMER, 0, topics)))
    assert [ErrorCode(topic.partitions[0].error_code) for topic in response.topics] == [
        E.FENCED_LEADER_EPOCH,
        E.INVALID_REQUEST,
        E.INVALID_REQUEST,
        E.KAFKA_STORAGE_ERROR,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.NOT_LEADER_OR_FOLLOWER,
    ]
    refused = list_offsets.refuse(rig.context(2, 11), ListOffsetsRequest(topics=topics), E.UNKNOWN_SERVER_ERROR, None)
    assert all(topic.partitions[0].error_code == E.UNKNOWN_SERVER_ERROR for topic in refused.topics)


async def test_look_up_on_disk_waits_and_its_failure_takes_the_partition_offline(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, NOW_MS)
    rig.disk.failing["cold"] = 0
    assert (await list_offset(rig, NOW_MS))[2] == 0
    rig.disk.failing["read_cold"] = EIO
    assert (await list_offset(rig, NOW_MS))[0] is E.KAFKA_STORAGE_ERROR
    rig.disk.failing.clear()
    assert (await list_offset(rig, special_values.LATEST))[0] is E.KAFKA_STORAGE_ERROR


async def test_replica_lists_offsets_without_permission_for_the_topic(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    rig.services.authorizer = broker_context.Deny((AclOperation.DESCRIBE, "t"))
    for replica_id, expected in ((2, E.NONE), (CONSUMER, E.TOPIC_AUTHORIZATION_FAILED)):
        partitions = [ListOffsetsPartition(0, -1, special_values.LATEST)]
        request = ListOffsetsRequest(replica_id, 0, [ListOffsetsTopic("t", partitions)])
        response = await outcome(list_offsets.handle(rig.context(2, 11), request))
        assert response.topics[0].partitions[0].error_code == expected


@pytest.mark.parametrize("roles", [(CLIENT,), (CLIENT, BROKER)])
async def test_replica_id_of_a_broker_is_refused_on_a_listener_for_clients(
    tmp_path: Path, roles: tuple[str, ...]
) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    rig.session.listener = replace(rig.session.listener, roles=roles)
    expected = E.NONE if BROKER in roles else E.CLUSTER_AUTHORIZATION_FAILED
    offsets = ListOffsetsRequest(2, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, special_values.LATEST)])])
    epochs = OffsetForLeaderEpochRequest(2, [OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0)])])
    for api, version, request in ((list_offsets, 11, offsets), (offset_for_leader_epoch, 4, epochs)):
        context = rig.context(request.API_KEY, version)
        try:
            response = await outcome(api.handle(context, request))
        except Refusal as refusal:
            response = api.refuse(context, request, refusal.error, None)
        assert response.topics[0].partitions[0].error_code == expected
        for replica_id in (CONSUMER, DEBUGGER):
            request.replica_id = replica_id
            response = await outcome(api.handle(context, request))
            assert response.topics[0].partitions[0].error_code == E.NONE


async def test_offset_for_leader_epoch_returns_the_end_of_the_epoch(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    append(rig, NOW_MS, NOW_MS)
    for _ in range(2):
        rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1))
    append(rig, NOW_MS)
    rows = [(0, -1), (1, -1), (2, 2), (3, -1), (-1, -1), (0, 1), (0, 3)]
    requested = [OffsetForLeaderPartition(0, current, epoch) for epoch, current in rows]
    request = OffsetForLeaderEpochRequest(
        -1, [OffsetForLeaderTopic("t", requested), OffsetForLeaderTopic("x", requested[:1])]
    )
    response = await outcome(offset_for_leader_epoch.handle(rig.context(23, 4), request))
    assert [(ErrorCode(a.error_code), a.leader_epoch, a.end_offset) for a in response.topics[0].partitions] == [
        (E.NONE, 0, 2),
        (E.NONE, 0, 2),  # nothing was written in epoch 1
        (E.NONE, 2, 3),
        (E.NONE, -1, -1),
        (E.NONE, -1, -1),
        (E.FENCED_LEADER_EPOCH, -1, -1),
        (E.UNKNOWN_LEADER_EPOCH, -1, -1),
    ]
    assert response.topics[1].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    refused_response = offset_for_leader_epoch.refuse(rig.context(23, 4), request, E.UNKNOWN_SERVER_ERROR, None)
    assert refused_response.topics[0].partitions[0].error_code == E.UNKNOWN_SERVER_ERROR


async def test_describe_producers_returns_the_producers_of_a_partition(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.services.authorizer = broker_context.Deny((AclOperation.READ, "secret"))
    rig.topic("t", 2)
    append(rig, NOW_MS, NOW_MS + 1, producer_id=5, producer_epoch=2, base_sequence=0)
    guard = rig.partition().log.producers.start_verification(7, 0, 0, supports_epoch_bump=False)
    data = batch(producer_id=7, epoch=0, sequence=0, transactional=True)
    rig.partition().append(data, origin=Origin.CLIENT, now_ms=NOW_MS, guard=guard)
    rig.partition("t", 1).take_offline(OSError(EIO, "injected"))
    topics = [TopicRequest("t", [0, 1, 2]), TopicRequest("secret", [0]), TopicRequest("no/name", [0])]
    response = await broker_context.response_of(
        describe_producers.handle(rig.context(61, 0), DescribeProducersRequest(topics))
    )
    partitions = [partition for topic in response.topics for partition in topic.partitions]
    assert [ErrorCode(partition.error_code) for partition in partitions] == [
        E.NONE,
        E.KAFKA_STORAGE_ERROR,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.INVALID_TOPIC_EXCEPTION,
    ]
    rows = [
        (
            p.producer_id,
            p.producer_epoch,
            p.last_sequence,
            p.last_timestamp,
            p.coordinator_epoch,
            p.current_txn_start_offset,
        )
        for p in partitions[0].active_producers
    ]
    assert rows == [(5, 2, 1, NOW_MS + 1, -1, -1), (7, 0, 0, NOW_MS, -1, 2)]
    assert partitions[1].error_message


@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize(("count", "turns"), [(ELEMENTS_PER_PART, 1), (3 * ELEMENTS_PER_PART, 3)])
async def test_describe_producers_describes_the_producers_of_one_partition_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, turns: int, connected: bool
) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    if connected:
        metrics = {61: ApiMetrics("DescribeProducers")}
        rig.session.begin_large = LargeRequests(ByteBudget(1 << 40), metrics).begin
    for producer_id in range(count):
        append(rig, NOW_MS, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    described = [0]
    """Number of producers that are described per turn of the event loop."""

    def describing(*fields: Any) -> ProducerState:
        described[-1] += 1
        return ProducerState(*fields)

    monkeypatch.setattr(describe_producers, "ProducerState", describing)
    handled = describe_producers.handle(rig.context(61, 0), DescribeProducersRequest([TopicRequest("t", [0])]))
    response = asyncio.ensure_future(broker_context.response_of(handled))
    while not response.done():
        await asyncio.sleep(0)
        if any(described):
            rig.partition().log.producers.remove_unused([(count - 1, 0, 0)])
        described.append(0)
    in_turns = [number for number in described if number]
    assert (len(in_turns), max(in_turns)) == (turns, ELEMENTS_PER_PART)
    encoding = SlicedEncoding(61, 0, 1, response.result())
    while not encoding.run_slice():
        pass
    data = b"".join(map(bytes, encoding.chunks))[HEADER_BYTES:]
    rows = decode(DescribeProducersResponse, 0, data).topics[0].partitions[0].active_producers
    # A producer that is removed meanwhile is left out, if it is not described yet.
    assert [row.producer_id for row in rows] == list(range(count if turns == 1 else count - 1))


async def test_describe_producers_names_clients_and_removes_producers_that_were_not_used_meanwhile(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    client = Client("10.0.0.1", "flood")
    for producer_id in (5, 6, 7, 8):
        data = build_batch([(None, b"v", NOW_MS, ())], producer_id=producer_id, producer_epoch=0, base_sequence=0)
        rig.partition().append(data, origin=Origin.CLIENT, now_ms=NOW_MS, client=client)
    rig.clock.now_ms += 9
    guard = rig.partition().log.producers.start_verification(9, 0, 0, supports_epoch_bump=False)
    data = batch(producer_id=9, epoch=0, sequence=0, transactional=True)
    rig.partition().append(data, origin=Origin.CLIENT, now_ms=NOW_MS, guard=guard)

    async def describe(*expired: tuple[int, int, int]) -> Any:
        data = b"".join(EXPIRED_PRODUCER.pack(*each) for each in expired)
        tagged = ((EXPIRE_TAG, data),) if expired else ()
        request = DescribeProducersRequest([TopicRequest("t", [0], tagged)])
        context = rig.context(61, 0)
        context.now_ms = NOW_MS
        handled = describe_producers.handle(context, decode(DescribeProducersRequest, 0, encode(request, 0)))
        encoded = encode(await broker_context.response_of(handled), 0)
        return decode(DescribeProducersResponse, 0, encoded).topics[0].partitions[0]

    first, *_ = (await describe()).active_producers
    assert dict(first.unknown_tagged_fields) == {
        DESCRIBED_CLIENT_ID_TAG: b"flood",
        DESCRIBED_ADDRESS_TAG: b"10.0.0.1",
        DESCRIBED_IDLE_TAG: IDLE.pack(9),
    }
    removed = await describe((5, 0, 0), (6, 0, 4), (7, 1, 0), (9, 0, 0), (4, 0, 0))
    assert dict(removed.unknown_tagged_fields) == {EXPIRE_TAG: COUNT.pack(1)}
    assert removed.active_producers == []
    assert [row.producer_id for row in (await describe()).active_producers] == [6, 7, 8, 9]
    rig.services.authorizer = broker_context.Deny((AclOperation.CLUSTER_ACTION, "kafka-cluster"))
    with pytest.raises(Refusal, match="CLUSTER_AUTHORIZATION_FAILED"):
        await describe((6, 0, 0))
    rig.services.authorizer = AllowAll()
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2))
    assert (await describe((6, 0, 0))).error_code == E.NOT_LEADER_OR_FOLLOWER
    for broken in (b"123", bytes(EXPIRED_PRODUCER.size * (describe_producers.EXPIRED_MAX + 1))):
        request = DescribeProducersRequest([TopicRequest("t", [0], ((EXPIRE_TAG, broken),))])
        with pytest.raises(Refusal, match="INVALID_REQUEST"):
            describe_producers.handle(rig.context(61, 0), request)


@pytest.mark.parametrize(
    "topics",
    [
        [TopicRequest("t", [0, 0], ((EXPIRE_TAG, b""),))],
        [TopicRequest("t", [0], ((EXPIRE_TAG, b""),)), TopicRequest("u", [0])],
        [TopicRequest("u", [0]), TopicRequest("t", [0], ((EXPIRE_TAG, b""),))],
    ],
)
def test_request_removes_producers_of_one_partition_alone(tmp_path: Path, topics: list[TopicRequest]) -> None:
    """The work would otherwise be partitions times producers."""
    with pytest.raises(Refusal, match="one partition"):
        describe_producers.handle(Rig(tmp_path).context(61, 0), DescribeProducersRequest(topics))
