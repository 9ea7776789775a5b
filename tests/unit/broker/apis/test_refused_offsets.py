"""Requests that name offsets of several topics, some of which are not there, or twice, or are refused by the group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
)
from tests.support.broker_context import response_of, services_of
from tests.support.fake_groups import FakeGroups, group_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.broker.requests.api import AnyApi

E = ErrorCode
Topics = list[tuple[str, list[int]]]


class Transactions:
    """A verification that has one outcome."""

    def __init__(self, outcome: int | Refusal) -> None:
        self.outcome = outcome

    def find(self, *_where: Any) -> None: ...

    def start(self, *_what: Any) -> list[int | Refusal]:
        return [self.outcome]


async def committed(groups: FakeGroups, topics: Topics) -> Any:
    named = [
        OffsetCommitRequestTopic(name, partitions=[OffsetCommitRequestPartition(index, 5) for index in indexes])
        for name, indexes in topics
    ]
    context = group_context(offset_commit.API, 9, groups)
    return await response_of(offset_commit.handle(context, OffsetCommitRequest("g", topics=named)))


async def committed_in_transaction(groups: FakeGroups, topics: Topics, outcome: int | Refusal = 1) -> Any:
    named = [
        TxnOffsetCommitRequestTopic(name, [TxnOffsetCommitRequestPartition(index, 5) for index in indexes])
        for name, indexes in topics
    ]
    context = group_context(txn_offset_commit.API, 3, groups)
    services = services_of(context)
    services.partitions = services.verifier = Transactions(outcome)
    services.groups.partition_of = lambda _group: 0
    return await response_of(txn_offset_commit.handle(context, TxnOffsetCommitRequest("tx", "g", topics=named)))


def told(response: Any) -> list[tuple[str, list[tuple[int, ErrorCode]]]]:
    return [
        (topic.name, [(each.partition_index, ErrorCode(each.error_code)) for each in topic.partitions])
        for topic in response.topics
    ]


MIXED: Topics = [("t", [0, 9]), ("nowhere", [1]), ("u", [0])]


def mixed(error: ErrorCode) -> list[tuple[str, list[tuple[int, ErrorCode]]]]:
    """`error` for what is there."""
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    return [("t", [(9, unknown), (0, error)]), ("nowhere", [(1, unknown)]), ("u", [(0, error)])]


async def test_what_the_group_refuses_hides_nothing_of_what_is_not_there() -> None:
    groups = FakeGroups(Refusal(E.ILLEGAL_GENERATION))
    assert told(await committed(groups, MIXED)) == mixed(E.ILLEGAL_GENERATION)


async def test_what_is_refused_in_a_transaction_hides_nothing_of_what_is_not_there() -> None:
    groups = FakeGroups(Refusal(E.ILLEGAL_GENERATION))
    assert told(await committed_in_transaction(groups, MIXED)) == mixed(E.ILLEGAL_GENERATION)
    fenced = Refusal(E.PRODUCER_FENCED)
    assert told(await committed_in_transaction(FakeGroups(), MIXED, fenced)) == mixed(E.INVALID_PRODUCER_EPOCH)
    abortable = Refusal(E.TRANSACTION_ABORTABLE)  # which this version does not know
    assert told(await committed_in_transaction(FakeGroups(), MIXED, abortable)) == mixed(E.INVALID_TXN_STATE)


async def test_a_topic_without_partitions_is_not_answered_where_the_group_refuses() -> None:
    groups = FakeGroups(Refusal(E.UNKNOWN_MEMBER_ID))
    assert told(await committed(groups, [("t", [0]), ("u", [])])) == [("t", [(0, E.UNKNOWN_MEMBER_ID)])]


TWICE: Topics = [("nowhere", [1, 1]), ("t", [0, 8]), ("nowhere", [0]), ("t", [9])]
UNKNOWN = E.UNKNOWN_TOPIC_OR_PARTITION


async def deleted(topics: Sequence[tuple[str, list[int]]]) -> Any:
    named = [
        OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in indexes])
        for name, indexes in topics
    ]
    context = group_context(offset_delete.API, 0, FakeGroups(OffsetDeleteResponse()))
    return await response_of(offset_delete.handle(context, OffsetDeleteRequest("g", named)))


async def test_no_answer_is_lost_for_a_topic_that_is_named_twice() -> None:
    nowhere = ("nowhere", [(1, UNKNOWN), (1, UNKNOWN), (0, UNKNOWN)])
    refused = E.UNKNOWN_MEMBER_ID
    expected = [nowhere, ("t", [(8, UNKNOWN), (9, UNKNOWN), (0, refused)])]
    assert told(await committed(FakeGroups(Refusal(refused)), TWICE)) == expected
    assert told(await committed_in_transaction(FakeGroups(Refusal(refused)), TWICE)) == expected
    assert told(await deleted(TWICE)) == [nowhere, ("t", [(8, UNKNOWN), (9, UNKNOWN)])]


@pytest.mark.parametrize("api", [offset_commit.API, txn_offset_commit.API])
async def test_nothing_is_asked_of_the_group_for_topics_that_are_not_there(api: AnyApi) -> None:
    ask = committed if api is offset_commit.API else committed_in_transaction
    groups = FakeGroups()
    expected = [("nowhere", [(0, UNKNOWN), (1, UNKNOWN)])]
    assert told(await ask(groups, [("nowhere", [0]), ("nowhere", [1])])) == expected
    assert groups.calls == []
