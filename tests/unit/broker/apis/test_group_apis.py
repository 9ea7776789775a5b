"""Group APIs before the coordinator: permissions, unknown topics and the form of errors in each version."""

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
async def test_request_without_group_permission_is_refused(api: AnyApi, request_: Any, operation: AclOperation) -> None:
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
async def test_request_without_transactional_id_permission_is_refused(api: AnyApi, request_: Any) -> None:
    assert await refusal_of(lambda: api.handle(group_context(api, 3, None, (A.WRITE, "tx")), request_)) is (
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )


async def test_each_group_without_permission_has_its_own_error() -> None:
    denied = (A.DESCRIBE, "no")
    groups = FakeGroups(DescribedGroup(group_id="g", group_state="Stable"))
    described = await response_of(
        describe_groups.handle(
            group_context(describe_groups.API, 6, groups, denied), DescribeGroupsRequest(["no", "g"], True)
        )
    )
    assert [(group.group_id, group.error_code) for group in described.groups] == [
        ("no", E.GROUP_AUTHORIZATION_FAILED),
        ("g", E.NONE),
    ]
    operations = described.groups[1].authorized_operations
    assert operations == sum(
        1 << operation for operation in (A.READ, A.DELETE, A.DESCRIBE, A.DESCRIBE_CONFIGS, A.ALTER_CONFIGS)
    )
    deleted = await response_of(
        delete_groups.handle(
            group_context(
                delete_groups.API, 3, FakeGroups(None, Refusal(E.NON_EMPTY_GROUP, "reason")), (A.DELETE, "no")
            ),
            DeleteGroupsRequest(["no", "g", "full"]),
        )
    )
    assert {result.group_id: (result.error_code, result.error_message) for result in deleted.results} == {
        "no": (E.GROUP_AUTHORIZATION_FAILED, None),
        "g": (E.NONE, None),
        "full": (E.NON_EMPTY_GROUP, "reason"),
    }


async def test_consumer_group_with_a_denied_topic_is_not_described() -> None:
    assignment = Assignment([TopicPartitions(UUID(int=1), "t", [0])])
    described = DescribedConsumerGroup(group_id="g", members=[Member(member_id="m", assignment=assignment)])
    request = ConsumerGroupDescribeRequest(["g"])
    handle = consumer_group_describe.handle
    response = await response_of(handle(group_context(consumer_group_describe.API, 1, FakeGroups(described)), request))
    assert [len(group.members) for group in response.groups] == [1]
    denied_context = group_context(consumer_group_describe.API, 1, FakeGroups(described), (A.DESCRIBE, "t"))
    response = await response_of(handle(denied_context, request))
    assert [(group.error_code, group.members) for group in response.groups] == [(E.TOPIC_AUTHORIZATION_FAILED, [])]


async def test_list_groups_needs_describe_on_the_cluster_or_the_group() -> None:
    class Listing:
        def all_shards(self) -> list[int]:
            return [0]

        def listed_bytes_max(self, shard: int) -> int:
            return 1_000

        async def list_groups(
            self, states: frozenset[str], types: frozenset[str], shards: list[int]
        ) -> list[ListedGroup]:
            assert (states, types, shards) == (frozenset({"stable"}), frozenset({"classic"}), [0])
            return [ListedGroup("g"), ListedGroup("no")]

    no_cluster = (A.DESCRIBE, CLUSTER_RESOURCE)
    for denied, names in (
        ((), ["g", "no"]),
        (((A.DESCRIBE, "no"),), ["g", "no"]),
        ((no_cluster, (A.DESCRIBE, "no")), ["g"]),
    ):
        listing: Any = Listing()
        response = await response_of(
            list_groups.handle(
                group_context(list_groups.API, 5, listing, *denied), ListGroupsRequest([" StAbLe "], ["Classic"])
            )
        )
        assert [group.group_id for group in response.groups] == names


async def test_subscription_to_a_denied_topic_is_refused() -> None:
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
async def test_consumer_protocol_without_its_feature_is_an_unsupported_version(api: AnyApi, request_: Any) -> None:
    assert await refusal_of(lambda: api.handle(context(1, IMAGE), request_)) is E.UNSUPPORTED_VERSION


async def test_sync_group_without_protocol_name_is_inconsistent() -> None:
    request = SyncGroupRequest("g", protocol_type="consumer", protocol_name=None)
    assert await refusal_of(lambda: sync_group.handle(group_context(sync_group.API, 5), request)) is (
        E.INCONSISTENT_GROUP_PROTOCOL
    )


async def test_protocol_name_is_empty_before_join_group_v7_and_null_since() -> None:
    for version, protocol_name, name in ((6, None, ""), (7, None, None), (7, "", None), (7, "range", "range")):
        groups = FakeGroups(JoinGroupResponse(protocol_name=protocol_name))
        response = await response_of(
            join_group.handle(group_context(join_group.API, version, groups), JoinGroupRequest("g"))
        )
        assert response.protocol_name == name


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


async def test_offset_commit_reaches_the_coordinator_with_topic_name_and_id() -> None:
    for version, commit_request in ((9, commit(("t", 0))), (10, commit(("", 1)))):
        committed = OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic("t", UUID(int=1), [OffsetCommitResponsePartition(0)])]
        )
        groups = FakeGroups(committed)
        response = await response_of(
            offset_commit.handle(group_context(offset_commit.API, version, groups), commit_request)
        )
        ((_, sent, _),) = groups.calls
        assert [(topic.name, topic.topic_id, len(topic.partitions)) for topic in sent.topics] == [("t", UUID(int=1), 1)]
        assert [[(p.partition_index, p.error_code) for p in topic.partitions] for topic in response.topics] == [
            [(7, E.UNKNOWN_TOPIC_OR_PARTITION), (0, E.NONE)]
        ]


async def test_each_topic_without_permission_has_its_own_commit_error() -> None:
    groups = FakeGroups()
    request = commit(("u", 2), ("missing", 3))
    response = await response_of(
        offset_commit.handle(group_context(offset_commit.API, 9, groups, (A.READ, "u")), request)
    )
    assert [topic.partitions[0].error_code for topic in response.topics] == [
        E.TOPIC_AUTHORIZATION_FAILED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    response = await response_of(offset_commit.handle(group_context(offset_commit.API, 10, groups), commit(("", 3))))
    assert response.topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_ID
    assert groups.calls == []


async def test_fetch_of_all_offsets_leaves_out_denied_and_unknown_topics() -> None:
    topics = [
        OffsetFetchResponseTopics(name, partitions=[OffsetFetchResponsePartitions(0, 5)]) for name in ("t", "u", "gone")
    ]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    for version, names in ((9, ["t", "gone"]), (10, ["t"])):
        groups = FakeGroups(OffsetFetchResponseGroup("g", list(topics)))
        response = await response_of(
            offset_fetch.handle(group_context(offset_fetch.API, version, groups, (A.DESCRIBE, "u")), request)
        )
        assert [topic.name for topic in response.groups[0].topics] == names
        assert version < 10 or response.groups[0].topics[0].topic_id == UUID(int=1)


async def test_offset_fetch_of_denied_groups_and_topics_has_authorization_errors() -> None:
    topics = [OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in ("t", "u")]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup("no", topics=list(topics)), OffsetFetchRequestGroup("g", topics=list(topics))]
    )
    groups = FakeGroups(OffsetFetchResponseGroup("g", [OffsetFetchResponseTopics("t")]))
    denied = ((A.DESCRIBE, "no"), (A.DESCRIBE, "u"))
    response = await response_of(offset_fetch.handle(group_context(offset_fetch.API, 8, groups, *denied), request))
    assert [(group.group_id, group.error_code) for group in response.groups] == [
        ("no", E.GROUP_AUTHORIZATION_FAILED),
        ("g", E.NONE),
    ]
    assert [(topic.name, [p.error_code for p in topic.partitions]) for topic in response.groups[1].topics] == [
        ("t", []),
        ("u", [E.TOPIC_AUTHORIZATION_FAILED]),
    ]


@pytest.mark.parametrize(
    ("version", "group_error"), [(1, E.NONE), (2, E.NOT_COORDINATOR), (3, E.NOT_COORDINATOR), (7, E.NOT_COORDINATOR)]
)
async def test_group_error_of_offset_fetch_is_on_the_group_since_v2_and_on_each_partition(
    version: int, group_error: ErrorCode
) -> None:
    """The error NOT_COORDINATOR replaces COORDINATOR_NOT_AVAILABLE, which clients do not expect here."""
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0, 1])])
    groups = FakeGroups(Refusal(E.COORDINATOR_NOT_AVAILABLE))
    response = await response_of(offset_fetch.handle(group_context(offset_fetch.API, version, groups), request))
    assert response.error_code == group_error
    assert [
        (p.partition_index, p.committed_offset, p.error_code) for topic in response.topics for p in topic.partitions
    ] == [
        (0, -1, E.NOT_COORDINATOR),
        (1, -1, E.NOT_COORDINATOR),
    ]
    assert encode(response, version)


async def test_group_error_of_offset_delete_leaves_out_topic_errors() -> None:
    request = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("missing", [OffsetDeleteRequestPartition(0)])])
    for error, topics in ((E.NONE, 1), (E.GROUP_ID_NOT_FOUND, 0)):
        groups = FakeGroups(OffsetDeleteResponse(error_code=error))
        response = await response_of(offset_delete.handle(group_context(offset_delete.API, 0, groups), request))
        assert (response.error_code, len(response.topics)) == (error, topics)


async def test_txn_offset_commit_of_unknown_or_denied_topics_has_errors_per_partition() -> None:
    partitions = [TxnOffsetCommitRequestPartition(0, 1)]
    request = TxnOffsetCommitRequest(
        "tx",
        "g",
        topics=[
            TxnOffsetCommitRequestTopic("missing", partitions=partitions),
            TxnOffsetCommitRequestTopic("u", partitions=partitions),
        ],
    )
    response = await response_of(
        txn_offset_commit.handle(group_context(txn_offset_commit.API, 5, None, (A.READ, "u")), request)
    )
    assert {topic.name: topic.partitions[0].error_code for topic in response.topics} == {
        "missing": E.UNKNOWN_TOPIC_OR_PARTITION,
        "u": E.TOPIC_AUTHORIZATION_FAILED,
    }
    by_id = TxnOffsetCommitRequest(
        "tx",
        "g",
        topics=[
            TxnOffsetCommitRequestTopic(topic_id=UUID(int=9), partitions=partitions),
            TxnOffsetCommitRequestTopic(topic_id=UUID(int=0), partitions=partitions),
            TxnOffsetCommitRequestTopic(topic_id=UUID(int=2), partitions=partitions),
            TxnOffsetCommitRequestTopic(topic_id=UUID(int=1), partitions=[TxnOffsetCommitRequestPartition(7, 1)]),
        ],
    )
    denied = group_context(txn_offset_commit.API, 6, None, (A.READ, "u"))
    response = await response_of(txn_offset_commit.handle(denied, by_id))
    assert {topic.topic_id.int: topic.partitions[0].error_code for topic in response.topics} == {
        9: E.UNKNOWN_TOPIC_ID,
        0: E.UNKNOWN_TOPIC_ID,
        2: E.TOPIC_AUTHORIZATION_FAILED,
        1: E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    without_group = TxnOffsetCommitRequest("tx", "", topics=[TxnOffsetCommitRequestTopic("t", partitions=partitions)])
    response = await response_of(txn_offset_commit.handle(group_context(txn_offset_commit.API, 5), without_group))
    assert response.topics[0].partitions[0].error_code == E.INVALID_GROUP_ID


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
    requests: dict[type, Any] = {
        OffsetCommitRequest: commit(("t", 1)),
        DescribeGroupsRequest: DescribeGroupsRequest(["g"]),
        DeleteGroupsRequest: DeleteGroupsRequest(["g"]),
        ConsumerGroupDescribeRequest: ConsumerGroupDescribeRequest(["g"]),
        OffsetFetchRequest: OffsetFetchRequest(
            "g", [OffsetFetchRequestTopic("t", [0])], [OffsetFetchRequestGroup("g")]
        ),
        TxnOffsetCommitRequest: TxnOffsetCommitRequest(
            "tx", "g", topics=[TxnOffsetCommitRequestTopic("t", UUID(int=1), [TxnOffsetCommitRequestPartition(0, 1)])]
        ),
    }
    for version in range(api.min_version, api.max_version + 1):
        request = requests.get(api.request) or api.request()
        if api is offset_commit.API and version < 10:
            request.topics[0].topic_id = UUID(int=0)
        response = api.refuse(group_context(api, version), request, E.NOT_COORDINATOR, "message")
        assert response is not None
        assert E.NOT_COORDINATOR.to_bytes(2, "big") in encode(response, version)
