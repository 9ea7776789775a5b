"""OffsetCommit, TxnOffsetCommit and OffsetDelete: unknown topics, topics named twice and refusals of the group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from odradek.broker.apis import offset_commit, offset_delete, txn_offset_commit
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from odradek.protocol.primitives import ZERO_UUID
from tests.support.broker_context import response_of, services_of
from tests.support.fake_groups import FakeGroups, group_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.broker.requests.api import AnyApi

E = ErrorCode
Topics = list[tuple[str, list[int]]]
TOPIC_IDS = {"t": UUID(int=1), "u": UUID(int=2)}


class FakeVerifier:
    """Fake partitions and transaction verifier: each verification completes with `outcome`."""

    def __init__(self, outcome: int | Refusal) -> None:
        self.outcome = outcome

    def find(self, *_partition: Any) -> None: ...

    def start(self, *_batches: Any) -> list[int | Refusal]:
        return [self.outcome]


async def commit(groups: FakeGroups, topics: Topics) -> Any:
    named = [
        OffsetCommitRequestTopic(name, partitions=[OffsetCommitRequestPartition(index, 5) for index in indexes])
        for name, indexes in topics
    ]
    context = group_context(offset_commit.API, 9, groups)
    return await response_of(offset_commit.handle(context, OffsetCommitRequest("g", topics=named)))


async def commit_in_transaction(
    groups: FakeGroups, topics: Topics, outcome: int | Refusal = 1, version: int = 3
) -> Any:
    named = [
        TxnOffsetCommitRequestTopic(
            name, TOPIC_IDS.get(name, ZERO_UUID), [TxnOffsetCommitRequestPartition(index, 5) for index in indexes]
        )
        for name, indexes in topics
    ]
    context = group_context(txn_offset_commit.API, version, groups)
    services = services_of(context)
    services.partitions = services.verifier = FakeVerifier(outcome)
    services.groups.partition_of = lambda _group: 0
    return await response_of(txn_offset_commit.handle(context, TxnOffsetCommitRequest("tx", "g", topics=named)))


def errors(response: Any) -> list[tuple[str, list[tuple[int, ErrorCode]]]]:
    return [
        (topic.name, [(partition.partition_index, ErrorCode(partition.error_code)) for partition in topic.partitions])
        for topic in response.topics
    ]


MIXED: Topics = [("t", [0, 9]), ("missing", [1]), ("u", [0])]


def expected_errors(error: ErrorCode) -> list[tuple[str, list[tuple[int, ErrorCode]]]]:
    """Return the expected errors of MIXED: `error` for the partitions that exist."""
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    return [("t", [(9, unknown), (0, error)]), ("missing", [(1, unknown)]), ("u", [(0, error)])]


async def test_group_error_keeps_the_errors_of_unknown_partitions() -> None:
    groups = FakeGroups(Refusal(E.ILLEGAL_GENERATION))
    assert errors(await commit(groups, MIXED)) == expected_errors(E.ILLEGAL_GENERATION)


async def test_transactional_commit_error_keeps_the_errors_of_unknown_partitions() -> None:
    groups = FakeGroups(Refusal(E.ILLEGAL_GENERATION))
    assert errors(await commit_in_transaction(groups, MIXED)) == expected_errors(E.ILLEGAL_GENERATION)
    fenced = Refusal(E.PRODUCER_FENCED)
    assert errors(await commit_in_transaction(FakeGroups(), MIXED, fenced)) == expected_errors(E.INVALID_PRODUCER_EPOCH)
    abortable = Refusal(E.TRANSACTION_ABORTABLE)  # TxnOffsetCommit v3 does not know this error
    assert errors(await commit_in_transaction(FakeGroups(), MIXED, abortable)) == expected_errors(E.INVALID_TXN_STATE)


@pytest.mark.parametrize("version", [3, 6])
async def test_transactional_commit_reaches_the_coordinator_with_names_and_topic_ids(version: int) -> None:
    groups = FakeGroups(TxnOffsetCommitResponse())
    await commit_in_transaction(groups, MIXED, version=version)
    ((_, sent, _, _),) = groups.calls
    assert [(topic.name, topic.topic_id.int) for topic in sent.topics] == [("t", 1), ("u", 2)]


async def test_topic_without_partitions_is_left_out_of_an_error_response() -> None:
    groups = FakeGroups(Refusal(E.UNKNOWN_MEMBER_ID))
    assert errors(await commit(groups, [("t", [0]), ("u", [])])) == [("t", [(0, E.UNKNOWN_MEMBER_ID)])]


DUPLICATE_TOPICS: Topics = [("missing", [1, 1]), ("t", [0, 8]), ("missing", [0]), ("t", [9])]
UNKNOWN = E.UNKNOWN_TOPIC_OR_PARTITION


async def delete(topics: Sequence[tuple[str, list[int]]]) -> Any:
    named = [
        OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in indexes])
        for name, indexes in topics
    ]
    context = group_context(offset_delete.API, 0, FakeGroups(OffsetDeleteResponse()))
    return await response_of(offset_delete.handle(context, OffsetDeleteRequest("g", named)))


async def test_topic_named_twice_gets_one_result_with_all_partitions() -> None:
    missing = ("missing", [(1, UNKNOWN), (1, UNKNOWN), (0, UNKNOWN)])
    error = E.UNKNOWN_MEMBER_ID
    expected = [missing, ("t", [(8, UNKNOWN), (9, UNKNOWN), (0, error)])]
    assert errors(await commit(FakeGroups(Refusal(error)), DUPLICATE_TOPICS)) == expected
    assert errors(await commit_in_transaction(FakeGroups(Refusal(error)), DUPLICATE_TOPICS)) == expected
    assert errors(await delete(DUPLICATE_TOPICS)) == [missing, ("t", [(8, UNKNOWN), (9, UNKNOWN)])]


@pytest.mark.parametrize("api", [offset_commit.API, txn_offset_commit.API])
async def test_commit_of_unknown_topics_only_never_reaches_the_coordinator(api: AnyApi) -> None:
    send = commit if api is offset_commit.API else commit_in_transaction
    groups = FakeGroups()
    expected = [("missing", [(0, UNKNOWN), (1, UNKNOWN)])]
    assert errors(await send(groups, [("missing", [0]), ("missing", [1])])) == expected
    assert groups.calls == []
