"""Responses to the parts of a large request: joined as the objects would be, in the memory that is charged."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.dispatch.error_counts import counter_of
from odradek.broker.requests.joining import JoinedResponse
from odradek.broker.requests.splitting import ELEMENTS_PER_PART, Splitting
from odradek.protocol.codec import SlicedEncoding, SlicedPacking, encode_response
from odradek.protocol.generation.measuring import element_classes, instance
from odradek.protocol.messages import APIS, response_class
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from odradek.protocol.codec import SlicedDecoding
    from odradek.protocol.schema import Buffer, Message, Packed, Struct

GROUPS = Splitting(("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions"))
KEY, VERSION = OffsetFetchResponse.API_KEY, 8
PARTS = 60
PART_BYTES = 600 * ELEMENTS_PER_PART
"""Maximum memory of one part: its objects, and its encoded form twice."""


class Work:
    """Work on a large request without other work beside it."""

    def __init__(self, version: int = VERSION) -> None:
        self.charged = 0
        self._version = version

    async def turn(self) -> None:
        pass

    async def decode(self, decoding: SlicedDecoding[Any]) -> None:
        raise NotImplementedError

    def charge(self, count: int) -> None:
        self.charged += count

    def reserved(self, count: int) -> AbstractContextManager[None]:
        raise NotImplementedError

    async def pack(self, message: type[Message], elements: Sequence[Struct]) -> Packed:
        packing = SlicedPacking(message, self._version, elements)
        while not packing.run_slice():
            pass
        packed = packing.packed()
        self.charge(len(packed.data))
        return packed


def chunks(key: int, version: int, response: Message) -> Sequence[Buffer]:
    """Return the encoded response. Packed elements are not copied."""
    encoding = SlicedEncoding(key, version, 1, response)
    while not encoding.run_slice():
        pass
    return encoding.chunks


def encoded(key: int, version: int, response: Message) -> bytes:
    return b"".join(chunks(key, version, response))


def part(group: str, topic: str, begin: int) -> OffsetFetchResponse:
    partitions = [OffsetFetchResponsePartitions(begin + index, 10**12) for index in range(ELEMENTS_PER_PART)]
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group, [OffsetFetchResponseTopics(topic, partitions=partitions)])]
    )


async def test_parts_of_one_topic_and_of_several_are_joined_as_their_objects() -> None:
    parts = [("g", "t", 0), ("g", "t", 2), ("g", "u", 2), ("h", "u", 2), ("h", "u", 1), ("h", "v", 0)]
    joined, whole = JoinedResponse(GROUPS, OffsetFetchResponse), None
    for number, (group, topic, shared) in enumerate(parts):
        await joined.add(part(group, topic, number), shared, Work())
        if whole is None:
            whole = part(group, topic, number)
        else:
            GROUPS.join(whole, part(group, topic, number), shared)
    assert whole is not None
    assert encoded(KEY, VERSION, joined.response) == b"".join(encode_response(KEY, VERSION, 1, whole))


async def test_results_that_a_part_has_encoded_are_joined_as_their_objects() -> None:
    """A handler encodes results whose size does not follow from the request (`collect_charged`)."""
    for packed in ((1,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        joined, work, groups = JoinedResponse(GROUPS, OffsetFetchResponse), Work(), []
        for number in range(3):
            response = part(f"g{number}", "t", 0)
            groups += part(f"g{number}", "t", 0).groups
            if number in packed:
                response = OffsetFetchResponse(groups=[await work.pack(OffsetFetchResponse, response.groups)])  # type: ignore[list-item]
            await joined.add(response, 0, work)
        whole = OffsetFetchResponse(groups=groups)
        assert encoded(KEY, VERSION, joined.response) == b"".join(encode_response(KEY, VERSION, 1, whole)), packed
        counter_of(OffsetFetchResponse)(joined.response, {})  # raises if an object precedes encoded results


async def test_peak_memory_of_a_joined_response_is_at_most_its_charge_and_one_part() -> None:
    joined, work = JoinedResponse(GROUPS, OffsetFetchResponse), Work()
    await joined.add(part("g", "t", 0), 0, work)
    encoded(KEY, VERSION, joined.response)
    tracemalloc.start()
    try:
        for number in range(PARTS):
            await joined.add(part("g", "t", number), 2, work)
        size = sum(map(len, chunks(KEY, VERSION, joined.response)))
        highest = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert highest <= work.charged + PART_BYTES
    assert work.charged <= size <= work.charged + 100


@pytest.mark.parametrize("api_key", list(APIS), ids=lambda key: response_class(key).NAME)
def test_packed_arrays_of_all_responses_are_encoded_as_their_objects(api_key: int) -> None:
    cls = response_class(api_key)
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        for path in element_classes(cls):
            tagged = any(row.tagged_in(version) for row in path)
            if tagged or not all(row.in_version(version) and row.is_array for row in path):
                continue
            response = instance(cls, version, path, 3)
            whole = b"".join(encode_response(api_key, version, 1, response))
            struct: Any = response
            for row in path[:-1]:
                [struct] = getattr(struct, row.name)
            elements = getattr(struct, path[-1].name)
            packing = SlicedPacking(cls, version, elements[:2])
            while not packing.run_slice():
                pass
            setattr(struct, path[-1].name, [packing.packed(), elements[2]])
            assert encoded(api_key, version, response) == whole, (version, [row.name for row in path])
