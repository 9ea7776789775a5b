"""What the APIs of groups judge before a coordinator is asked: who may do what, which topics there are, how errors look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from odradek.broker.apis import (
    add_offsets_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from odradek.cluster.authorizer import CLUSTER_RESOURCE, AclOperation
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    Member,
    TopicPartitions,
)
from odradek.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.messages.leave_group import LeaveGroupRequest
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.broker_context import context, response_of
from tests.support.fake_groups import IMAGE, FakeGroups, group_context

if TYPE_CHECKING:
    from odradek.broker.requests.api import AnyApi

E = ErrorCode
A = AclOperation


async def refusal_of(call: Any) -> ErrorCode:
    with pytest.raises(Refusal) as refusal:
        await response_of(call())
    return refusal.value.error


@pytest.mark.parametrize(
    ("api", "request_", "operation"),
    [
        (join_group.API, JoinGroupRequest("g"), A.READ),
        (sync_group.API, SyncGroupRequest("g"), A.READ),
        (heartbeat.API, HeartbeatRequest("g"), A.READ),
        (leave_group.API, LeaveGroupRequest("g"), A.READ),
        (offset_commit.API, OffsetCommitRequest("g"), A.READ),
        (offset_delete.API, OffsetDeleteRequest("g"), A.DELETE),
        (consumer_group_heartbeat.API, ConsumerGroupHeartbeatRequest("g"), A.READ),
        (add_offsets_to_txn.API, AddOffsetsToTxnRequest("tx", 1, 0, "g"), A.READ),
        (txn_offset_commit.API, TxnOffsetCommitRequest("tx", "g"), A.READ),
    ],
    ids=lambda value: value.name if hasattr(value, "listeners") else "",
)
async def test_who_may_not_use_a_group_is_told_so(api: AnyApi, request_: Any, operation: AclOperation) -> None:
    groups = FakeGroups()
    version = min(api.max_version, 4)
    assert await refusal_of(lambda: api.handle(group_context(api, version, groups, (operation, "g")), request_)) is (
        E.GROUP_AUTHORIZATION_FAILED
    )
    assert groups.calls == []


@pytest.mark.parametrize(
    ("api", "request_"),
    [
        (add_offsets_to_txn.API, AddOffsetsToTxnRequest("tx", 1, 0, "g")),
        (txn_offset_commit.API, TxnOffsetCommitRequest("tx", "g")),
    ],
)
async def test_who_may_not_use_a_transactional_id_is_told_so(api: AnyApi, request_: Any) -> None:
    assert await refusal_of(lambda: api.handle(group_context(api, 3, None, (A.WRITE, "tx")), request_)) is (
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )


async def test_groups_that_may_not_be_told_are_answered_each_by_itself() -> None:
    denied = (A.DESCRIBE, "no")
    groups = FakeGroups(DescribedGroup(group_id="g", group_state="Stable"))
    described = await response_of(
        describe_groups.handle(
            group_context(describe_groups.API, 6, groups, denied), DescribeGroupsRequest(["no", "g"], True)
        )
    )
    assert [(each.group_id, each.error_code) for each in described.groups] == [
        ("no", E.GROUP_AUTHORIZATION_FAILED),
        ("g", E.NONE),
    ]
    operations = described.groups[1].authorized_operations
    assert operations == sum(1 << each for each in (A.READ, A.DELETE, A.DESCRIBE, A.DESCRIBE_CONFIGS, A.ALTER_CONFIGS))
    deleted = await response_of(
        delete_groups.handle(
            group_context(delete_groups.API, 2, FakeGroups(None, Refusal(E.NON_EMPTY_GROUP)), (A.DELETE, "no")),
            DeleteGroupsRequest(["no", "g", "full"]),
        )
    )
    assert {each.group_id: each.error_code for each in deleted.results} == {
        "no": E.GROUP_AUTHORIZATION_FAILED,
        "g": E.NONE,
        "full": E.NON_EMPTY_GROUP,
    }


async def test_a_group_with_a_hidden_topic_is_not_described() -> None:
    assignment = Assignment([TopicPartitions(UUID(int=1), "t", [0])])
    shown = DescribedConsumerGroup(group_id="g", members=[Member(member_id="m", assignment=assignment)])
    request = ConsumerGroupDescribeRequest(["g"])
    handle = consumer_group_describe.handle
    told = await response_of(handle(group_context(consumer_group_describe.API, 1, FakeGroups(shown)), request))
    assert [len(group.members) for group in told.groups] == [1]
    hiding = group_context(consumer_group_describe.API, 1, FakeGroups(shown), (A.DESCRIBE, "t"))
    told = await response_of(handle(hiding, request))
    assert [(group.error_code, group.members) for group in told.groups] == [(E.TOPIC_AUTHORIZATION_FAILED, [])]


async def test_groups_are_listed_for_who_may_describe_the_cluster_or_the_group() -> None:
    class Listing:
        async def list_groups(self, states: tuple[str, ...], types: tuple[str, ...]) -> list[ListedGroup]:
            assert (states, types) == (("Stable",), ("classic",))
            return [ListedGroup("g"), ListedGroup("no")]

    no_cluster = (A.DESCRIBE, CLUSTER_RESOURCE)
    for denied, names in (
        ((), ["g", "no"]),
        (((A.DESCRIBE, "no"),), ["g", "no"]),
        ((no_cluster, (A.DESCRIBE, "no")), ["g"]),
    ):
        listing: Any = Listing()
        told = await response_of(
            list_groups.handle(
                group_context(list_groups.API, 5, listing, *denied), ListGroupsRequest(["Stable"], ["classic"])
            )
        )
        assert [group.group_id for group in told.groups] == names


async def test_members_may_subscribe_only_to_topics_that_they_may_describe() -> None:
    request = ConsumerGroupHeartbeatRequest("g", subscribed_topic_names=["t", "u", "t"])
    assert await refusal_of(
        lambda: consumer_group_heartbeat.handle(
            group_context(consumer_group_heartbeat.API, 1, None, (A.DESCRIBE, "u")), request
        )
    ) is (E.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize(
    ("api", "request_"),
    [
        (consumer_group_heartbeat.API, ConsumerGroupHeartbeatRequest("g")),
        (consumer_group_describe.API, ConsumerGroupDescribeRequest(["g"])),
    ],
)
async def test_the_consumer_protocol_needs_its_feature(api: AnyApi, request_: Any) -> None:
    assert await refusal_of(lambda: api.handle(context(1, IMAGE), request_)) is E.UNSUPPORTED_VERSION


async def test_a_sync_has_to_name_its_protocol() -> None:
    request = SyncGroupRequest("g", protocol_type="consumer", protocol_name=None)
    assert await refusal_of(lambda: sync_group.handle(group_context(sync_group.API, 5), request)) is (
        E.INCONSISTENT_GROUP_PROTOCOL
    )


async def test_the_name_of_a_protocol_is_never_null_for_older_clients_and_never_empty_for_others() -> None:
    for version, given, name in ((6, None, ""), (7, None, None), (7, "", None), (7, "range", "range")):
        groups = FakeGroups(JoinGroupResponse(protocol_name=given))
        told = await response_of(
            join_group.handle(group_context(join_group.API, version, groups), JoinGroupRequest("g"))
        )
        assert told.protocol_name == name


def commit(*topics: tuple[str, int]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        "g",
        topics=[
            OffsetCommitRequestTopic(
                name, UUID(int=number), [OffsetCommitRequestPartition(0, 1), OffsetCommitRequestPartition(7, 1)]
            )
            for name, number in topics
        ],
    )


async def test_offsets_go_to_the_coordinator_with_name_and_id() -> None:
    for version, asked in ((9, commit(("t", 0))), (10, commit(("", 1)))):
        committed = OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic("t", UUID(int=1), [OffsetCommitResponsePartition(0)])]
        )
        groups = FakeGroups(committed)
        told = await response_of(offset_commit.handle(group_context(offset_commit.API, version, groups), asked))
        ((_, sent, _),) = groups.calls
        assert [(each.name, each.topic_id, len(each.partitions)) for each in sent.topics] == [("t", UUID(int=1), 1)]
        assert [[(p.partition_index, p.error_code) for p in each.partitions] for each in told.topics] == [
            [(7, E.UNKNOWN_TOPIC_OR_PARTITION), (0, E.NONE)]
        ]


async def test_topics_that_may_not_be_committed_for_are_answered_each_by_itself() -> None:
    groups = FakeGroups()
    request = commit(("u", 2), ("nowhere", 3))
    told = await response_of(offset_commit.handle(group_context(offset_commit.API, 9, groups, (A.READ, "u")), request))
    assert [each.partitions[0].error_code for each in told.topics] == [
        E.TOPIC_AUTHORIZATION_FAILED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    told = await response_of(offset_commit.handle(group_context(offset_commit.API, 10, groups), commit(("", 3))))
    assert told.topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_ID
    assert groups.calls == []


async def test_all_offsets_of_a_group_less_those_that_may_not_be_told() -> None:
    topics = [
        OffsetFetchResponseTopics(name, partitions=[OffsetFetchResponsePartitions(0, 5)]) for name in ("t", "u", "gone")
    ]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    for version, shown in ((9, ["t", "gone"]), (10, ["t"])):
        groups = FakeGroups(OffsetFetchResponseGroup("g", list(topics)))
        told = await response_of(
            offset_fetch.handle(group_context(offset_fetch.API, version, groups, (A.DESCRIBE, "u")), request)
        )
        assert [each.name for each in told.groups[0].topics] == shown
        assert version < 10 or told.groups[0].topics[0].topic_id == UUID(int=1)


async def test_groups_and_topics_whose_offsets_may_not_be_told() -> None:
    wanted = [OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in ("t", "u")]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup("no", topics=list(wanted)), OffsetFetchRequestGroup("g", topics=list(wanted))]
    )
    groups = FakeGroups(OffsetFetchResponseGroup("g", [OffsetFetchResponseTopics("t")]))
    denied = ((A.DESCRIBE, "no"), (A.DESCRIBE, "u"))
    told = await response_of(offset_fetch.handle(group_context(offset_fetch.API, 8, groups, *denied), request))
    assert [(each.group_id, each.error_code) for each in told.groups] == [
        ("no", E.GROUP_AUTHORIZATION_FAILED),
        ("g", E.NONE),
    ]
    assert [(each.name, [p.error_code for p in each.partitions]) for each in told.groups[1].topics] == [
        ("t", []),
        ("u", [E.TOPIC_AUTHORIZATION_FAILED]),
    ]


@pytest.mark.parametrize(
    ("version", "whole"), [(1, E.NONE), (2, E.NOT_COORDINATOR), (3, E.NOT_COORDINATOR), (7, E.NOT_COORDINATOR)]
)
async def test_the_error_of_a_group_where_the_version_has_a_place_for_it(version: int, whole: ErrorCode) -> None:
    """And of each partition, for who looks there alone. COORDINATOR_NOT_AVAILABLE among them: clients do not expect it here."""
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0, 1])])
    groups = FakeGroups(Refusal(E.COORDINATOR_NOT_AVAILABLE))
    told = await response_of(offset_fetch.handle(group_context(offset_fetch.API, version, groups), request))
    assert told.error_code == whole
    assert [(p.partition_index, p.committed_offset, p.error_code) for t in told.topics for p in t.partitions] == [
        (0, -1, E.NOT_COORDINATOR),
        (1, -1, E.NOT_COORDINATOR),
    ]
    assert encode(told, version)


async def test_the_error_of_a_group_hides_those_of_its_topics() -> None:
    request = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("nowhere", [OffsetDeleteRequestPartition(0)])])
    for error, topics in ((E.NONE, 1), (E.GROUP_ID_NOT_FOUND, 0)):
        groups = FakeGroups(OffsetDeleteResponse(error_code=error))
        told = await response_of(offset_delete.handle(group_context(offset_delete.API, 0, groups), request))
        assert (told.error_code, len(told.topics)) == (error, topics)


async def test_offsets_in_a_transaction_of_topics_that_are_not_there() -> None:
    partitions = [TxnOffsetCommitRequestPartition(0, 1)]
    request = TxnOffsetCommitRequest(
        "tx",
        "g",
        topics=[TxnOffsetCommitRequestTopic("nowhere", partitions), TxnOffsetCommitRequestTopic("u", partitions)],
    )
    told = await response_of(
        txn_offset_commit.handle(group_context(txn_offset_commit.API, 5, None, (A.READ, "u")), request)
    )
    assert {each.name: each.partitions[0].error_code for each in told.topics} == {
        "nowhere": E.UNKNOWN_TOPIC_OR_PARTITION,
        "u": E.TOPIC_AUTHORIZATION_FAILED,
    }
    nameless = TxnOffsetCommitRequest("tx", "", topics=[TxnOffsetCommitRequestTopic("t", partitions)])
    told = await response_of(txn_offset_commit.handle(group_context(txn_offset_commit.API, 5), nameless))
    assert told.topics[0].partitions[0].error_code == E.INVALID_GROUP_ID


@pytest.mark.parametrize(
    "api",
    [
        add_offsets_to_txn.API,
        consumer_group_describe.API,
        consumer_group_heartbeat.API,
        delete_groups.API,
        describe_groups.API,
        heartbeat.API,
        join_group.API,
        leave_group.API,
        list_groups.API,
        offset_commit.API,
        offset_delete.API,
        offset_fetch.API,
        sync_group.API,
        txn_offset_commit.API,
    ],
    ids=lambda api: api.name,
)
def test_refusals_encode_in_every_version(api: AnyApi) -> None:
    full: dict[type, Any] = {
        OffsetCommitRequest: commit(("t", 1)),
        DescribeGroupsRequest: DescribeGroupsRequest(["g"]),
        DeleteGroupsRequest: DeleteGroupsRequest(["g"]),
        ConsumerGroupDescribeRequest: ConsumerGroupDescribeRequest(["g"]),
        OffsetFetchRequest: OffsetFetchRequest(
            "g", [OffsetFetchRequestTopic("t", [0])], [OffsetFetchRequestGroup("g")]
        ),
        TxnOffsetCommitRequest: TxnOffsetCommitRequest(
            "tx", "g", topics=[TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 1)])]
        ),
    }
    for version in range(api.min_version, api.max_version + 1):
        request = full.get(api.request) or api.request()
        if api is offset_commit.API and version < 10:
            request.topics[0].topic_id = UUID(int=0)
        response = api.refuse(group_context(api, version), request, E.NOT_COORDINATOR, "why")
        assert response is not None
        assert E.NOT_COORDINATOR.to_bytes(2, "big") in encode(response, version)
