"""Splitting of large requests: each element is in one part, and the joined response equals that of the whole."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.requests.splitting import CHARACTERS_PER_PART, ELEMENTS_PER_PART, Splitting
from odradek.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from odradek.protocol.messages.offset_delete import OffsetDeleteResponse
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.support.effort import effort

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUPS = Splitting(("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions"))
HASHED = Splitting(("groups",), ("groups",), hashed=str)
DELETED = Splitting(("topics", "partitions"), ("topics", "partitions"))
NAMES = Splitting(("groups",), ("groups",))


def topic(index: int, partitions: int) -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics(f"t{index}", partition_indexes=list(range(partitions)))


def request(*groups: Sequence[int] | None) -> OffsetFetchRequest:
    """Return a request with one group per argument: the number of partitions of each of its topics."""
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                f"g{number}",
                topics=None
                if topics is None
                else [
                    OffsetFetchRequestTopics(f"t{i}", partition_indexes=list(range(n))) for i, n in enumerate(topics)
                ],
            )
            for number, topics in enumerate(groups)
        ]
    )


def handle(part: OffsetFetchRequest) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group.group_id,
                [
                    OffsetFetchResponseTopics(
                        topic.name,
                        partitions=[OffsetFetchResponsePartitions(index, 5) for index in topic.partition_indexes],
                    )
                    for topic in group.topics or ()
                ],
            )
            for group in part.groups
        ]
    )


def joined(whole: OffsetFetchRequest) -> OffsetFetchResponse:
    response: OffsetFetchResponse | None = None
    for part, shared in GROUPS.parts(whole):
        if response is None:
            assert shared == 0
            response = handle(part)
        else:
            GROUPS.join(response, handle(part), shared)
    assert response is not None
    return response


def elements(part: OffsetFetchRequest) -> int:
    return sum(len(topic.partition_indexes) for group in part.groups for topic in group.topics or ())


@settings(max_examples=effort(30), deadline=None)
@given(st.lists(st.none() | st.lists(st.integers(0, 2_500), max_size=4), min_size=1, max_size=5))
def test_joined_response_equals_the_response_to_the_whole_request(groups: list[list[int] | None]) -> None:
    whole = request(*groups)
    assert joined(whole) == handle(whole)
    assert all(elements(part) <= ELEMENTS_PER_PART for part, _ in GROUPS.parts(whole))
    assert whole == request(*groups), "the request is unchanged"


def test_request_of_many_groups_without_topics_is_split() -> None:
    whole = request(*[[]] * 3_000)
    assert len(list(GROUPS.parts(whole))) >= 3
    assert joined(whole) == handle(whole)


def test_null_arrays_stay_null() -> None:
    [(part, _)] = GROUPS.parts(request(None, [1]))
    assert part.groups[0].topics is None


@pytest.mark.parametrize(("count", "is_large"), [(0, False), (ELEMENTS_PER_PART, False), (ELEMENTS_PER_PART + 1, True)])
def test_request_is_large_above_the_limit(count: int, is_large: bool) -> None:
    assert NAMES.is_large(DescribeGroupsRequest(groups=["g"] * count)) is is_large


@settings(max_examples=effort(30), deadline=None)
@given(st.lists(st.integers(0, 2 * CHARACTERS_PER_PART), max_size=30))
def test_ids_of_a_part_have_a_bounded_length(lengths: list[int]) -> None:
    """A handler hashes each id, so its work depends on their characters."""
    names = ["x" * length for length in lengths]
    whole = DescribeGroupsRequest(groups=names)
    parts = [part.groups for part, _ in HASHED.parts(whole)]
    assert [name for part in parts for name in part] == names
    assert all(len(part) == 1 or sum(map(len, part)) <= CHARACTERS_PER_PART for part in parts)
    assert HASHED.is_large(whole) or len(parts) == 1


def test_groups_with_long_ids_are_split() -> None:
    whole = request(*[[1, 2]] * 10)
    for group in whole.groups:
        group.group_id = "x" * (CHARACTERS_PER_PART // 2)
    hashed = replace(GROUPS, hashed=attrgetter("group_id"))
    parts = [part for part, _ in hashed.parts(whole)]
    assert all(sum(len(group.group_id) for group in part.groups) <= CHARACTERS_PER_PART for part in parts)
    assert sum(map(elements, parts)) == elements(whole)


def test_long_id_with_many_topics_is_counted_once() -> None:
    whole = request([1] * 3_000)
    whole.groups[0].group_id = "x" * CHARACTERS_PER_PART
    hashed = replace(GROUPS, hashed=attrgetter("group_id"))
    assert len(list(hashed.parts(whole))) <= len(list(GROUPS.parts(whole))) + 1


def test_first_error_for_the_whole_request_is_kept() -> None:
    whole = OffsetDeleteResponse()
    for error in (0, 16, 15):
        DELETED.join(whole, OffsetDeleteResponse(error_code=error), 0)
    assert whole.error_code == 16


def test_longest_throttle_time_and_first_error_of_the_parts_are_kept() -> None:
    whole = OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g")], throttle_time_ms=5)
    GROUPS.join(whole, OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", error_code=16)]), 1)
    assert (whole.throttle_time_ms, whole.groups[0].error_code) == (5, 16)
    names = DescribeGroupsResponse(groups=[DescribedGroup(group_id="a")])
    NAMES.join(names, DescribeGroupsResponse(groups=[DescribedGroup(group_id="b")], throttle_time_ms=9), 0)
    assert ([group.group_id for group in names.groups], names.throttle_time_ms) == (["a", "b"], 9)


def test_results_in_another_order_are_not_joined_with_those_of_another_element() -> None:
    """A handler may return the results of refused topics last."""
    refused = OffsetFetchResponseTopics("refused", partitions=[OffsetFetchResponsePartitions(0, -1)])
    first, rest = (
        OffsetFetchResponseTopics("t", partitions=[OffsetFetchResponsePartitions(index, 5)]) for index in (0, 1)
    )
    whole = OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", [first, refused])])
    GROUPS.join(whole, OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", [rest])]), 2)
    assert [(topic.name, len(topic.partitions)) for topic in whole.groups[0].topics] == [
        ("t", 1),
        ("refused", 1),
        ("t", 1),
    ]
