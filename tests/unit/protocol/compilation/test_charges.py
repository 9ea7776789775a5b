"""Charges of decoded requests: never less than their memory, taken before it, and equal in both decoders."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from odradek.protocol.codec import SlicedDecoding, decode, decode_charged, encode
from odradek.protocol.compilation.charges_table import STRUCT_BYTES
from odradek.protocol.compilation.decoder import BYTES_PER_ELEMENT, ELEMENTS_PER_SLICE, FIXED_ELEMENTS_PER_SLICE
from odradek.protocol.errors import ChargeExceeded, Malformed
from odradek.protocol.generation.measuring import LARGEST, element_classes, instance
from odradek.protocol.messages import APIS, request_class
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.schema import field_rows

if TYPE_CHECKING:
    from odradek.protocol.schema import Message, Struct

UNLIMITED = 1 << 40
ELEMENTS = 300
FIXED_CHARGE = 4_096
"""Bytes of the message itself and of what Python allocates once, for which nothing is charged."""


def peak(cls: type[Message], version: int, data: bytes) -> tuple[int, int]:
    """Return (peak memory of the decoding, its charge), in bytes."""
    decode_charged(cls, version, data, UNLIMITED)
    tracemalloc.start()
    try:
        message, charge = decode_charged(cls, version, data, UNLIMITED)
        highest = tracemalloc.get_traced_memory()[1]
        del message
    finally:
        tracemalloc.stop()
    return highest, charge


def sliced(cls: type[Message], version: int, data: bytes) -> tuple[SlicedDecoding[Any], int]:
    decoding, slices = SlicedDecoding(cls, version, data, UNLIMITED), 1
    while not decoding.run_slice():
        slices += 1
    return decoding, slices


@pytest.mark.parametrize("api_key", list(APIS), ids=lambda key: request_class(key).NAME)
def test_peak_memory_is_at_most_the_charge_for_each_array_of_each_version(api_key: int) -> None:
    cls = request_class(api_key)
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        for path in element_classes(cls):
            if all(row.in_version(version) for row in path):
                message = instance(cls, version, path, ELEMENTS)
                data = encode(message, version)
                highest, charge = peak(cls, version, data)
                assert highest <= charge + FIXED_CHARGE, (version, [row.name for row in path])
                decoding, _ = sliced(cls, version, data)
                assert (decoding.message, decoding.charge) == (decode(cls, version, data), charge)


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (DescribeGroupsRequest(groups=["\U0001f600" + "x" * 200] * ELEMENTS), 5),
        (DescribeGroupsRequest(groups=["x"] * ELEMENTS), 0),
        (MetadataRequest(topics=[MetadataRequestTopic(topic_id=UUID(int=n + 1)) for n in range(ELEMENTS)]), 12),
        (ApiVersionsRequest(unknown_tagged_fields=tuple((n, b"x" * 9) for n in range(ELEMENTS))), 3),
        (ProduceRequest(topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData()])] * ELEMENTS), 9),
    ],
    ids=["wide characters", "short strings", "uuids", "tagged fields", "records"],
)
def test_peak_memory_of_strings_and_tagged_fields_is_at_most_the_charge(message: Message, version: int) -> None:
    highest, charge = peak(type(message), version, encode(message, version))
    assert highest <= charge + FIXED_CHARGE


def test_table_has_each_struct_of_request_arrays() -> None:
    """A struct without a row would have a guessed charge."""
    names = set()
    for api_key in APIS:
        for path in element_classes(request_class(api_key)):
            assert path[-1].struct is not None
            names.add(f"{path[-1].struct.__module__.rpartition('.')[2]}.{path[-1].struct.__name__}")
    assert names == set(STRUCT_BYTES)


def test_array_over_the_limit_is_refused_before_its_elements_exist() -> None:
    data = encode(DescribeGroupsRequest(groups=[""] * 500_000), 5)
    tracemalloc.start()
    try:
        for _ in range(2):
            with pytest.raises(ChargeExceeded):
                decode_charged(DescribeGroupsRequest, 5, data, 1_000_000)
        highest = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert highest < 500_000


def test_slice_has_a_bounded_number_of_elements() -> None:
    names = encode(DescribeGroupsRequest(groups=["g"] * 10 * ELEMENTS_PER_SLICE), 5)
    assert sliced(DescribeGroupsRequest, 5, names)[1] >= 10
    group = OffsetFetchRequestGroup(
        "g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[7] * 4 * FIXED_ELEMENTS_PER_SLICE)]
    )
    partitions = encode(OffsetFetchRequest(groups=[group]), 8)
    decoding, slices = sliced(OffsetFetchRequest, 8, partitions)
    assert slices >= 4
    assert decoding.message == OffsetFetchRequest(groups=[group])


def test_slice_has_a_bounded_number_of_bytes_of_strings() -> None:
    """200 names of 32 KiB are few elements, but take as long as thousands."""
    names = encode(DescribeGroupsRequest(groups=["g" * 32_000] * 200), 5)
    decoding, slices = sliced(DescribeGroupsRequest, 5, names)
    assert slices > len(names) // BYTES_PER_ELEMENT // ELEMENTS_PER_SLICE
    assert decoding.message == DescribeGroupsRequest(groups=["g" * 32_000] * 200)


def test_malformed_element_in_a_later_slice_is_reported_with_its_field() -> None:
    data = encode(DescribeGroupsRequest(groups=["g"] * 3 * ELEMENTS_PER_SLICE), 5)
    decoding = SlicedDecoding(DescribeGroupsRequest, 5, data[:-5] + b"\x00" * 5, UNLIMITED)
    assert not decoding.run_slice()
    with pytest.raises(Malformed, match="groups"):
        while not decoding.run_slice():
            pass


NESTED = 40
WIDE = "\U0001f600" + "x" * 60
TAGS = ((1_000, b"t" * 9), (1_001, b""))


def filled(cls: type[Struct], version: int, *, flexible: bool, nulls: bool, count: int) -> Any:
    """Return an instance whose arrays have `count` elements, with tagged fields and long strings, or with nulls."""
    values: dict[str, object] = {}
    for row in field_rows(cls):
        if not row.in_version(version):
            continue
        if nulls and row.nullable_in(version):
            values[row.name] = None
        elif row.struct is not None:
            nested = filled(row.struct, version, flexible=flexible, nulls=nulls, count=2)
            values[row.name] = [nested] * count if row.is_array else nested
        elif row.kind == "string":
            values[row.name] = [WIDE] * count if row.is_array else WIDE
        else:
            values[row.name] = [LARGEST[row.kind]] * count if row.is_array else LARGEST[row.kind]
    if flexible and not nulls:
        values["unknown_tagged_fields"] = TAGS
    return cls(**values)


@pytest.mark.parametrize("nulls", [False, True], ids=["long strings and tagged fields", "nulls"])
@pytest.mark.parametrize("api_key", list(APIS), ids=lambda key: request_class(key).NAME)
def test_peak_memory_of_nested_arrays_is_at_most_the_charge(api_key: int, nulls: bool) -> None:
    cls = request_class(api_key)
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        flexible = cls.FLEXIBLE_MIN is not None and version >= cls.FLEXIBLE_MIN
        data = encode(filled(cls, version, flexible=flexible, nulls=nulls, count=NESTED), version)
        highest, charge = peak(cls, version, data)
        assert highest <= charge + FIXED_CHARGE, version
