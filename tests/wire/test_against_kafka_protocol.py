"""Encoding of ApiVersions and Metadata, decoded with the independent package kafka-protocol 0.1.

The generated values respect the limits of that package. It reads a null compact string as all remaining bytes. It keeps
only the first byte of a UUID, and does not decode tagged fields. Its last versions are Metadata v12 and ApiVersions v3.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import kafkaprotocol
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.protocol.codec import encode
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.schema import FieldRow, Message, Struct, field_rows
from tests.support.messages import struct_values

THEIRS: dict[type[Message], Any] = {
    ApiVersionsRequest: kafkaprotocol.ApiVersionsRequest,
    ApiVersionsResponse: kafkaprotocol.ApiVersionsResponse,
    MetadataRequest: kafkaprotocol.MetadataRequest,
    MetadataResponse: kafkaprotocol.MetadataResponse,
}
CASES = [(ours, version) for ours, theirs in THEIRS.items() for version in range(len(theirs))]


def limits(cls: type[Struct], row: FieldRow) -> st.SearchStrategy[Any] | None:
    if row.kind == "string" and not row.is_array:
        return st.text(min_size=1, max_size=8)  # not null; not empty, because the package returns "" as bytes
    if row.tag >= 0:
        return st.builds(list) if row.is_array else st.just(row.default)
    return None


def assert_equal(ours: Struct, theirs: Any, version: int) -> None:
    for row in field_rows(type(ours)):
        if row.in_version(version) and not row.tagged_in(version):
            assert_equal_value(row, getattr(ours, row.name), getattr(theirs, row.name), version)


def assert_equal_value(row: FieldRow, mine: Any, other: Any, version: int) -> None:
    if row.is_array:
        assert len(other or ()) == len(mine or ())
        for left, right in zip(mine or (), other or (), strict=True):
            if isinstance(left, Struct):
                assert_equal(left, right, version)
            else:
                assert right == left
    elif row.kind == "uuid":
        assert other == int.from_bytes(mine.bytes[:1], "big", signed=True)
    else:
        assert other == mine


@pytest.mark.parametrize(("ours", "version"), CASES)
def test_kafka_protocol_decodes_the_encoded_message(ours: type[Message], version: int) -> None:
    @settings(max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(struct_values(ours, version, limits))
    def check(message: Message) -> None:
        stream = BytesIO(encode(message, version))
        theirs = THEIRS[ours][version].unpack(stream)
        assert stream.read() == b""
        assert_equal(message, theirs, version)

    check()
