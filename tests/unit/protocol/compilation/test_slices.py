"""Encoders in slices: the same bytes as in one piece, and a bounded number of elements per slice."""

from __future__ import annotations

import pytest

from odradek.protocol.codec import SlicedEncoding, encode_response
from odradek.protocol.compilation.encoder import ELEMENTS_PER_SLICE
from odradek.protocol.errors import Unencodable
from odradek.protocol.generation.measuring import element_classes, instance
from odradek.protocol.messages import APIS, response_class
from odradek.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


def encoded(encoding: SlicedEncoding) -> tuple[bytes, int]:
    """Return the bytes of the response and the number of slices."""
    slices = 1
    while not encoding.run_slice():
        slices += 1
    return b"".join(encoding.chunks), slices


@pytest.mark.parametrize("api_key", list(APIS), ids=lambda key: response_class(key).NAME)
def test_response_in_slices_has_the_same_bytes_in_each_version(api_key: int) -> None:
    cls = response_class(api_key)
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        for path in element_classes(cls):
            if all(row.in_version(version) and not row.tagged_in(version) for row in path):
                response = instance(cls, version, path, 3)
                expected = b"".join(encode_response(api_key, version, 7, response))
                assert encoded(SlicedEncoding(api_key, version, 7, response))[0] == expected


def test_slice_has_a_bounded_number_of_elements() -> None:
    partitions = [ListOffsetsPartitionResponse(index) for index in range(10 * ELEMENTS_PER_SLICE)]
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", partitions)])
    data, slices = encoded(SlicedEncoding(2, 7, 1, response))
    assert data == b"".join(encode_response(2, 7, 1, response))
    assert slices >= 10


def test_large_records_of_several_slices_are_passed_by_reference() -> None:
    records = bytes(10_000)
    partitions = [
        PartitionData(index, records=records if index % 500 == 0 else None) for index in range(3 * ELEMENTS_PER_SLICE)
    ]
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=partitions)])
    encoding = SlicedEncoding(1, 12, 1, response)
    data, _ = encoded(encoding)
    assert data == b"".join(encode_response(1, 12, 1, response))
    assert sum(chunk is records for chunk in encoding.chunks) == 6


def test_value_that_cannot_be_encoded_is_reported_with_its_field() -> None:
    partitions = [ListOffsetsPartitionResponse(index) for index in range(2 * ELEMENTS_PER_SLICE)]
    partitions[-1].offset = 2**63
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", partitions)])
    with pytest.raises(Unencodable, match=r"topics\.partitions"):
        encoded(SlicedEncoding(2, 7, 1, response))
