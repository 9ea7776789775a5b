"""Groups and their offsets on a whole node, over real sockets, in raw requests."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from broker.clock import SystemClock
from broker.commit_gate import LocalCommitGate
from broker.env import Env
from broker.node import Node
from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from storage.os_disk import OsDisk
from tests.support.broker_context import config
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

E = ErrorCode
BUSY = (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS)
SAFE_DOWNGRADE = 2
UNKNOWN_ID = b"\x07" * 16


class Client:
    """One connection to a node with topic `t` of two partitions."""

    def __init__(self, node: Node, raw: RawClient) -> None:
        self.node = node
        self.raw = raw

    async def call(self, request: Any, version: int) -> Any:
        return await self.raw.call(request, version, timeout=10)

    async def ready(self, group: str = "g") -> None:
        """As a client begins: who coordinates the group?"""
        found = await self.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
        assert [each.error_code for each in found.coordinators] == [E.NONE]

    def topic_id(self, topic: str = "t") -> Any:
        return self.node.metadata.image.topics[topic].topic_id

    async def commit(self, offset: int, *, version: int = 8, group: str = "g", partition: int = 0) -> int:
        topic = OffsetCommitRequestTopic(
            name="t",
            topic_id=self.topic_id(),
            partitions=[OffsetCommitRequestPartition(partition, offset, 3, "note")],
        )
        answer = await self.call(OffsetCommitRequest(group_id=group, topics=[topic]), version)
        error: int = answer.topics[0].partitions[0].error_code
        return error

    async def fetched(self, *, version: int = 8, group: str = "g", stable: bool = False) -> Any:
        """(offset, metadata, error) of partition 0; the group's error where it has one."""
        if version < 8:
            topic = OffsetFetchRequestTopic("t", [0])
            answer = await self.call(OffsetFetchRequest(group_id=group, topics=[topic], require_stable=stable), version)
            error, topics = answer.error_code, answer.topics
        else:
            named = OffsetFetchRequestTopics("t", self.topic_id(), [0])
            asked = OffsetFetchRequestGroup(group, topics=[named])
            answer = await self.call(OffsetFetchRequest(groups=[asked], require_stable=stable), version)
            error, topics = answer.groups[0].error_code, answer.groups[0].topics
        if error:
            return ErrorCode(error)
        (found,) = topics[0].partitions
        return found.committed_offset, found.metadata, ErrorCode(found.error_code)

    async def until_not_busy(self, request: Any, version: int) -> Any:
        async with asyncio.timeout(10):
            while (answer := await self.call(request, version)).error_code in BUSY:
                await asyncio.sleep(0.01)
        return answer

    async def producer(self) -> tuple[int, int]:
        found = await self.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)
        assert found.coordinators[0].error_code == E.NONE
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        answer = await self.until_not_busy(request, 4)
        return answer.producer_id, answer.producer_epoch

    async def commit_in_transaction(self, producer: tuple[int, int], offset: int, version: int) -> int:
        partition = TxnOffsetCommitRequestPartition(0, offset)
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[TxnOffsetCommitRequestTopic("t", [partition])],
        )
        async with asyncio.timeout(10):
            while True:
                answer = await self.call(request, version)
                error: int = answer.topics[0].partitions[0].error_code
                if error not in BUSY:
                    return error
                await asyncio.sleep(0.01)

    async def end(self, producer: tuple[int, int], *, commit: bool, version: int) -> tuple[int, int]:
        answer = await self.until_not_busy(EndTxnRequest("tx", *producer, commit), version)
        assert answer.error_code == E.NONE
        return (answer.producer_id, answer.producer_epoch) if version >= 5 else producer


@asynccontextmanager
async def running(path: Path, *assignments: str, seed: int = 7) -> AsyncIterator[Client]:
    chosen = config(
        f"log.dirs={path}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "offsets.topic.num.partitions=3",
        "transaction.state.log.num.partitions=3",
        "group.initial.rebalance.delay.ms=0",
        *assignments,
    )
    unexpected: list[tuple[str, BaseException]] = []
    env = Env(OsDisk(), SystemClock(), random.Random(seed), LocalCommitGate, "boot")
    node = Node(chosen, env, on_unexpected=lambda where, exception: unexpected.append((where, exception)))
    try:
        await node.start()
        raw = await RawClient.connect("127.0.0.1", node.listeners[0].port)
        client = Client(node, raw)
        if "t" not in node.metadata.image.topics:
            topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
            await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        yield client
        raw.close()
    finally:
        await node.stop()
    assert unexpected == []


async def test_a_simple_consumer_commits_and_fetches_in_every_version(tmp_path: Path) -> None:
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
            told = (await client.call(everything, version)).groups[0]
            assert [len(topic.partitions) for topic in told.topics] == [1]
            assert told.topics[0].topic_id == client.topic_id() if version == 10 else told.topics[0].name == "t"


async def test_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        assert await client.commit(42) == E.NONE
    async with running(tmp_path, seed=8) as client:
        async with asyncio.timeout(10):
            while (found := await client.fetched()) in BUSY:
                await asyncio.sleep(0.01)
        assert found == (42, "note", E.NONE)


async def test_partitions_and_topics_that_do_not_exist_are_answered_each_by_itself(tmp_path: Path) -> None:
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
        answer = await client.call(OffsetCommitRequest(group_id="g", topics=topics), 9)
        told = {
            (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
        }
        assert told == {
            ("t", 1): E.NONE,
            ("t", 2): E.UNKNOWN_TOPIC_OR_PARTITION,
            ("none", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert len(answer.topics) == 2
        topics[1].topic_id = type(client.topic_id())(bytes=UNKNOWN_ID)
        answer = await client.call(OffsetCommitRequest(group_id="g", topics=topics[1:]), 10)
        assert answer.topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_ID
        asked = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("", topics[1].topic_id, [0])])
        fetched = await client.call(OffsetFetchRequest(groups=[asked]), 10)
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
async def test_a_member_of_a_classic_group_from_join_to_leave(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        joined = await client.call(join(), version)
        if version >= 4:
            assert joined.error_code == E.MEMBER_ID_REQUIRED
            joined = await client.call(join(joined.member_id), version)
        assert (joined.error_code, joined.generation_id, joined.leader) == (E.NONE, 1, joined.member_id)
        assert [(each.member_id, len(bytes(each.metadata))) for each in joined.members] == [(joined.member_id, 10)]
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
        assert [(each.group_state, each.error_code) for each in described] == [
            ("Stable", E.NONE),
            ("Dead", E.GROUP_ID_NOT_FOUND if version >= 6 else E.NONE),
        ]
        assert described[0].members[0].client_host == "/127.0.0.1"
        listed = await client.call(ListGroupsRequest(), 5)
        assert [(each.group_id, each.group_state, each.protocol_type) for each in listed.groups] == [
            ("g", "Stable", "consumer")
        ]
        deleted = await client.call(DeleteGroupsRequest(["g", "no"]), 2)
        assert {each.group_id: each.error_code for each in deleted.results} == {
            "g": E.NON_EMPTY_GROUP,
            "no": E.GROUP_ID_NOT_FOUND,
        }
        leave = LeaveGroupRequest("g", "", [MemberIdentity(joined.member_id)])
        assert (await client.call(leave, min(version, 5))).error_code == E.NONE
        deleted = await client.call(DeleteGroupsRequest(["g"]), 2)
        assert [each.error_code for each in deleted.results] == [E.NONE]


async def test_who_waits_for_others_when_the_node_stops_is_told_to_look_elsewhere(tmp_path: Path) -> None:
    async with running(tmp_path, "group.initial.rebalance.delay.ms=60000") as client:
        await client.ready()
        other = await RawClient.connect("127.0.0.1", client.node.listeners[0].port)
        waiting = other.send(join(), 3)
        async with asyncio.timeout(10):
            while not client.node.groups.waiting:
                await asyncio.sleep(0.001)
        client.node.groups.stop()
        async with asyncio.timeout(10):
            answer: Any = await waiting
        assert (answer.error_code, client.node.groups.waiting) == (E.NOT_COORDINATOR, 0)
        other.close()


async def test_a_client_that_is_gone_waits_for_nobody(tmp_path: Path) -> None:
    async with running(tmp_path, "group.initial.rebalance.delay.ms=60000") as client:
        await client.ready()
        other = await RawClient.connect("127.0.0.1", client.node.listeners[0].port)
        asked = other.send(join(), 3)
        async with asyncio.timeout(10):
            while not client.node.groups.waiting:
                await asyncio.sleep(0.001)
            other.abort()
            while client.node.groups.waiting:
                await asyncio.sleep(0.001)
        with pytest.raises(ConnectionError):
            await asked


async def test_a_member_of_a_group_of_the_consumer_protocol(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        beat = ConsumerGroupHeartbeatRequest(
            "g",
            "A" * 22,
            0,
            rebalance_timeout_ms=5_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        answer = await client.until_not_busy(beat, 1)
        assert answer.error_code == E.NONE
        assert answer.member_epoch > 0
        assert [topic.partitions for topic in answer.assignment.topic_partitions] == [[0, 1]]
        features = UpdateFeaturesRequest(
            timeout_ms=10_000, feature_updates=[FeatureUpdateKey("group.version", 0, upgrade_type=SAFE_DOWNGRADE)]
        )
        assert (await client.call(features, 1)).error_code == E.NONE
        refused = await client.call(beat, 1)
        assert refused.error_code == E.UNSUPPORTED_VERSION


async def test_offsets_of_a_group_are_deleted_unless_they_are_needed(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        assert await client.commit(42) == E.NONE
        topics = [
            OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]),
            OffsetDeleteRequestTopic("none", [OffsetDeleteRequestPartition(0)]),
        ]
        answer = await client.call(OffsetDeleteRequest("g", topics), 0)
        told = {
            (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
        }
        assert (answer.error_code, told) == (
            E.NONE,
            {
                ("t", 0): E.NONE,
                ("t", 9): E.UNKNOWN_TOPIC_OR_PARTITION,
                ("none", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
            },
        )
        assert await client.fetched() == (-1, "", E.NONE)


@pytest.mark.parametrize("version", [2, 3, 4, 5])
async def test_offsets_join_a_transaction_and_share_its_fate(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        end_version = 5 if version == 5 else 3
        producer = await client.producer()
        assert await client.commit(1) == E.NONE
        for offset, commit in ((7, False), (8, True)):
            if version < 5:
                if version == 4:  # nobody has added the partition of the group to the transaction
                    assert await client.commit_in_transaction(producer, offset, version) == E.TRANSACTION_ABORTABLE
                added = await client.until_not_busy(AddOffsetsToTxnRequest("tx", *producer, "g"), 3)
                assert added.error_code == E.NONE
            assert await client.commit_in_transaction(producer, offset, version) == E.NONE
            assert (await client.fetched())[0] == 1
            assert await client.fetched(stable=True) == (-1, "", E.UNSTABLE_OFFSET_COMMIT)
            producer = await client.end(producer, commit=commit, version=end_version)
            async with asyncio.timeout(10):
                while (await client.fetched(stable=True))[2] is E.UNSTABLE_OFFSET_COMMIT:
                    await asyncio.sleep(0.001)
            assert (await client.fetched(stable=True))[0] == (offset if commit else 1)


async def test_what_a_transaction_has_brought_is_there_after_a_restart_and_what_is_open_is_pending(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        producer = await client.producer()
        assert await client.commit_in_transaction(producer, 7, 5) == E.NONE
        producer = await client.end(producer, commit=True, version=5)
        assert await client.commit_in_transaction(producer, 8, 5) == E.NONE
    async with running(tmp_path, seed=8) as client:
        async with asyncio.timeout(10):
            while (found := await client.fetched()) in BUSY:
                await asyncio.sleep(0.01)
        assert found[0] == 7
        assert await client.fetched(stable=True) == (-1, "", E.UNSTABLE_OFFSET_COMMIT)
        await client.end(producer, commit=True, version=5)
        async with asyncio.timeout(10):
            while (found := await client.fetched(stable=True))[2] is E.UNSTABLE_OFFSET_COMMIT:
                await asyncio.sleep(0.001)
        assert found[0] == 8


async def test_a_producer_that_was_fenced_commits_no_offsets(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        producer = await client.producer()
        assert await client.commit_in_transaction(producer, 7, 5) == E.NONE
        await client.producer()
        assert await client.commit_in_transaction(producer, 8, 5) == E.INVALID_PRODUCER_EPOCH
        assert (await client.fetched(stable=True))[0] == -1
