"""Groups and their offsets: raw requests to one node over real sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.group_client import BUSY, running
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from pathlib import Path

E = ErrorCode
SAFE_DOWNGRADE = 2
UNKNOWN_ID = b"\x07" * 16


async def test_offset_commit_and_fetch_in_every_version(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        assert await client.fetched() == (-1, "", E.NONE)
        for number, version in enumerate(range(2, 11)):
            assert await client.commit(number, version=version) == E.NONE
            assert await client.fetched() == (number, "note", E.NONE)
        for version in range(1, 11):
            assert await client.fetched(version=version) == (8, "note", E.NONE)
        everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
        for version in (8, 10):
            group = (await client.call(everything, version)).groups[0]
            assert [len(topic.partitions) for topic in group.topics] == [1]
            assert group.topics[0].topic_id == client.topic_id() if version == 10 else group.topics[0].name == "t"


async def test_offsets_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        assert await client.commit(42) == E.NONE
    async with running(tmp_path, seed=8) as client:
        async with asyncio.timeout(10):
            while (committed := await client.fetched()) in BUSY:
                await asyncio.sleep(0.01)
        assert committed == (42, "note", E.NONE)


async def test_offset_commit_with_unknown_topics_and_partitions_gets_an_error_for_each(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        topics = [
            OffsetCommitRequestTopic(
                "t", client.topic_id(), [OffsetCommitRequestPartition(1, 5), OffsetCommitRequestPartition(2, 5)]
            ),
            OffsetCommitRequestTopic(
                "none", client.topic_id("__consumer_offsets"), [OffsetCommitRequestPartition(0, 5)]
            ),
        ]
        response = await client.call(OffsetCommitRequest(group_id="g", topics=topics), 9)
        errors = {
            (topic.name, row.partition_index): row.error_code for topic in response.topics for row in topic.partitions
        }
        assert errors == {
            ("t", 1): E.NONE,
            ("t", 2): E.UNKNOWN_TOPIC_OR_PARTITION,
            ("none", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert len(response.topics) == 2
        topics[1].topic_id = type(client.topic_id())(bytes=UNKNOWN_ID)
        response = await client.call(OffsetCommitRequest(group_id="g", topics=topics[1:]), 10)
        assert response.topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_ID
        unknown = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("", topics[1].topic_id, [0])])
        fetched = await client.call(OffsetFetchRequest(groups=[unknown]), 10)
        assert fetched.groups[0].topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_ID


def join(member_id: str = "", group: str = "g") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")],
    )


@pytest.mark.parametrize("version", [3, 5, 9])
async def test_classic_group_member_from_join_to_leave(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        joined = await client.call(join(), version)
        if version >= 4:
            assert joined.error_code == E.MEMBER_ID_REQUIRED
            joined = await client.call(join(joined.member_id), version)
        assert (joined.error_code, joined.generation_id, joined.leader) == (E.NONE, 1, joined.member_id)
        assert [(member.member_id, len(bytes(member.metadata))) for member in joined.members] == [
            (joined.member_id, 10)
        ]
        sync = SyncGroupRequest(
            "g",
            1,
            joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(joined.member_id, b"mine")],
        )
        synced = await client.call(sync, min(version, 5))
        assert (synced.error_code, bytes(synced.assignment)) == (E.NONE, b"mine")
        described = (await client.call(DescribeGroupsRequest(["g", "no"], True), min(version, 6))).groups
        assert [(group.group_state, group.error_code) for group in described] == [
            ("Stable", E.NONE),
            ("Dead", E.GROUP_ID_NOT_FOUND if version >= 6 else E.NONE),
        ]
        assert described[0].members[0].client_host == "/127.0.0.1"
        listed = await client.call(ListGroupsRequest(), 5)
        assert [(group.group_id, group.group_state, group.protocol_type) for group in listed.groups] == [
            ("g", "Stable", "consumer")
        ]
        deleted = await client.call(DeleteGroupsRequest(["g", "no"]), 2)
        assert {result.group_id: result.error_code for result in deleted.results} == {
            "g": E.NON_EMPTY_GROUP,
            "no": E.GROUP_ID_NOT_FOUND,
        }
        leave = LeaveGroupRequest("g", "", [MemberIdentity(joined.member_id)])
        assert (await client.call(leave, min(version, 5))).error_code == E.NONE
        deleted = await client.call(DeleteGroupsRequest(["g"]), 2)
        assert [result.error_code for result in deleted.results] == [E.NONE]


async def test_waiting_join_gets_not_coordinator_when_the_node_stops(tmp_path: Path) -> None:
    async with running(tmp_path, "group.initial.rebalance.delay.ms=60000") as client:
        await client.ready()
        client_2 = await RawClient.connect("127.0.0.1", client.node.listeners[0].port)
        waiting = client_2.send(join(), 3)
        async with asyncio.timeout(10):
            while not client.node.broker.groups.waiting:
                await asyncio.sleep(0.001)
        client.node.broker.groups.stop()
        async with asyncio.timeout(10):
            response: Any = await waiting
        assert (response.error_code, client.node.broker.groups.waiting) == (E.NOT_COORDINATOR, 0)
        client_2.close()


async def test_closed_connection_removes_its_waiting_join(tmp_path: Path) -> None:
    async with running(tmp_path, "group.initial.rebalance.delay.ms=60000") as client:
        await client.ready()
        client_2 = await RawClient.connect("127.0.0.1", client.node.listeners[0].port)
        waiting = client_2.send(join(), 3)
        async with asyncio.timeout(10):
            while not client.node.broker.groups.waiting:
                await asyncio.sleep(0.001)
            client_2.abort()
            while client.node.broker.groups.waiting:
                await asyncio.sleep(0.001)
        with pytest.raises(ConnectionError):
            await waiting


async def test_consumer_group_member_joins_and_gets_unsupported_version_after_downgrade(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        heartbeat = ConsumerGroupHeartbeatRequest(
            "g",
            "A" * 22,
            0,
            rebalance_timeout_ms=5_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        response = await client.until_not_busy(heartbeat, 1)
        assert response.error_code == E.NONE
        assert response.member_epoch > 0
        assert [topic.partitions for topic in response.assignment.topic_partitions] == [[0, 1]]
        features = UpdateFeaturesRequest(
            timeout_ms=10_000, feature_updates=[FeatureUpdateKey("group.version", 0, upgrade_type=SAFE_DOWNGRADE)]
        )
        assert (await client.call(features, 1)).error_code == E.NONE
        response = await client.call(heartbeat, 1)
        assert response.error_code == E.UNSUPPORTED_VERSION


async def test_offset_delete_removes_offsets_and_refuses_unknown_partitions(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        assert await client.commit(42) == E.NONE
        topics = [
            OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]),
            OffsetDeleteRequestTopic("none", [OffsetDeleteRequestPartition(0)]),
        ]
        response = await client.call(OffsetDeleteRequest("g", topics), 0)
        errors = {
            (topic.name, row.partition_index): row.error_code for topic in response.topics for row in topic.partitions
        }
        assert (response.error_code, errors) == (
            E.NONE,
            {
                ("t", 0): E.NONE,
                ("t", 9): E.UNKNOWN_TOPIC_OR_PARTITION,
                ("none", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
            },
        )
        assert await client.fetched() == (-1, "", E.NONE)
