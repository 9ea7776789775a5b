"""The list of topics: search, order, pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from odradek.client import Unreachable
from odradek.client.network.metadata import Broker, Metadata, Partition, Topic
from odradek.client.network.retry import Attempts, RetryPolicy
from odradek.console.model.paging import Paging, paging_of
from odradek.console.model.topics import TOPICS_PER_PAGE, TopicOrder, read_topics, topic_rows
from odradek.protocol.errors import ErrorCode
from odradek.protocol.special_values import NO_LEADER

if TYPE_CHECKING:
    from odradek.client import Cluster


def topic(name: str, *leaders: int, isr: tuple[int, ...] = (1, 2), internal: bool = False, error: int = 0) -> Topic:
    partitions = {index: Partition(index, leader, 0, (1, 2), isr) for index, leader in enumerate(leaders)}
    return Topic(name, UUID(int=1), internal, partitions, error)


TOPICS = [topic("Payments", 1), topic("flights", 1, 2, isr=(1,)), topic("__offsets", 1, internal=True), topic("a", -1)]


def names(search: str = "", *, internal: bool = False, order: TopicOrder = TopicOrder.NAME) -> list[str]:
    return [row.name for row in topic_rows(TOPICS, search, internal=internal, order=order)]


def test_search_ignores_case_and_internal_topics_are_hidden() -> None:
    assert names("PAY") == ["Payments"]
    assert names() == ["Payments", "a", "flights"]
    assert names("offset") == []
    assert names("offset", internal=True) == ["__offsets"]


def test_order_of_problems_begins_with_topics_without_leader() -> None:
    assert names(order=TopicOrder.PROBLEMS) == ["a", "flights", "Payments"]
    assert names(order=TopicOrder.PARTITIONS) == ["flights", "Payments", "a"]


def test_row_counts_partitions_without_leader_and_out_of_sync() -> None:
    row = topic_rows([topic("a", NO_LEADER, 1, isr=(1,))], "", internal=False, order=TopicOrder.NAME)[0]
    assert (row.partitions, row.replication_factor, row.leaderless, row.under_replicated) == (2, 2, 1, 2)
    assert row.error == ""
    refused = topic_rows(
        [topic("a", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)], "", internal=False, order=TopicOrder.NAME
    )[0]
    assert refused.error == "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize(
    ("total", "page", "expected"),
    [
        (0, 1, Paging(1, 1, 0, 0, 0)),
        (51, 1, Paging(1, 2, 51, 0, 50)),
        (51, 2, Paging(2, 2, 51, 50, 51)),
        (51, 99, Paging(2, 2, 51, 50, 51)),
        (51, 0, Paging(1, 2, 51, 0, 50)),
    ],
)
def test_page_outside_the_list_is_replaced_by_the_closest(total: int, page: int, expected: Paging) -> None:
    assert paging_of(total, page, 50) == expected


class FailedBroker:
    """A cluster whose broker does not respond. It keeps the names of topics in requests."""

    def __init__(self) -> None:
        self.requested: list[str] = []

    def attempts(self) -> Attempts:
        return Attempts(RetryPolicy(deadline_s=0))

    async def request(self, node_id: int, request: Any, **_: Any) -> Any:
        self.requested += [getattr(each, "name", None) or each.topic for each in request.topics]
        raise Unreachable(f"no connection to broker {node_id}")


async def test_offsets_and_sizes_are_requested_for_the_topics_of_the_page_only() -> None:
    topics = {name: topic(name, 1) for name in (f"t{number:04}" for number in range(1_000))}
    cluster = FailedBroker()
    metadata = Metadata({1: Broker(1, "host", 9092, None)}, 1, topics)
    page = await read_topics(cast("Cluster", cluster), metadata, "", internal=False, order=TopicOrder.NAME, page=3)
    assert [row.name for row in page.rows] == [f"t{number:04}" for number in range(100, 150)]
    assert set(cluster.requested) == {row.name for row in page.rows}
    assert len(page.rows) == TOPICS_PER_PAGE
    assert {row.offsets for row in page.rows} == {None}
    assert page.unreachable.keys() == {1, 2}
