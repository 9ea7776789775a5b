"""Encoding and decoding of messages in all their versions."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.protocol.codec import (
    decode,
    decode_prefix,
    encode,
    encode_chunks,
    encode_response,
    request_header_version,
    response_header_version,
)
from odradek.protocol.errors import Malformed, Unencodable
from odradek.protocol.messages import APIS, request_class, response_class
from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.describe_producers import DescribeProducersRequest
from odradek.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, RequestCursor
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from odradek.protocol.messages.headers import RequestHeader
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.protocol.primitives import unsigned_varint
from odradek.protocol.records.consumer_group_member_metadata import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from odradek.protocol.records.transaction_log import TransactionLogValue

TOPIC_ID = UUID(int=0x1234)


def produce(records: bytes) -> ProduceRequest:
    return ProduceRequest(
        None, -1, 30_000, [TopicProduceData(name="t", partition_data=[PartitionProduceData(0, records)])]
    )


def test_messages_have_the_equality_and_repr_of_dataclasses() -> None:
    first, second = EndTxnRequest(producer_id=1), EndTxnRequest(producer_id=1)
    assert first == second
    second.unknown_tagged_fields = ((7, b"x"),)
    assert first != second
    assert EndTxnRequest() != EndTxnResponse()
    fields = "transactional_id='', producer_id=1, producer_epoch=0, committed=False, unknown_tagged_fields=()"
    assert repr(first) == f"EndTxnRequest({fields})"
    with pytest.raises(TypeError, match="unhashable"):
        hash(first)


def test_field_that_the_version_lacks_has_its_default() -> None:
    request = decode(FetchRequest, 4, encode(FetchRequest(max_wait_ms=500, session_id=7, rack_id="r"), 4))
    assert (request.max_wait_ms, request.session_id, request.rack_id, request.max_bytes) == (500, 0, "", 2**31 - 1)


def test_ignorable_field_that_the_version_lacks_is_dropped() -> None:
    topic = TopicProduceResponse("t", TOPIC_ID, [PartitionProduceResponse(0, 0, 1, 2, 3)])
    [decoded] = decode(ProduceResponse, 3, encode(ProduceResponse([topic]), 3)).responses
    assert (decoded.name, decoded.topic_id.int, decoded.partition_responses[0].log_append_time_ms) == ("t", 0, 2)
    assert decoded.partition_responses[0].log_start_offset == -1


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (TransactionLogValue(previous_producer_id=1), 0, "previous_producer_id"),
        (TransactionLogValue(client_transaction_version=2), 0, "client_transaction_version"),
        (InitProducerIdRequest(keep_prepared_txn=True), 5, "keep_prepared_txn"),
        (FetchRequest(replica_state=ReplicaState(1, -1)), 14, "replica_state"),
        (FetchRequest(replica_id=3), 15, "replica_id"),
        (AddPartitionsToTxnRequest(v3_and_below_producer_id=1), 4, "v3_and_below_producer_id"),
        (AddPartitionsToTxnRequest(unknown_tagged_fields=((9, b""),)), 0, "message"),
    ],
)
def test_value_in_a_field_that_the_version_lacks_is_an_error(
    message: TransactionLogValue | InitProducerIdRequest | FetchRequest | AddPartitionsToTxnRequest,
    version: int,
    field: str,
) -> None:
    with pytest.raises(Unencodable, match=field):
        encode(message, version)


@pytest.mark.parametrize(
    ("message", "version", "pattern"),
    [
        (EndTxnRequest("x" * 32_768), 0, "transactional_id"),
        (EndTxnRequest("x" * 32_768), 3, "transactional_id"),
        (EndTxnRequest("\ud800"), 3, "transactional_id"),
        (EndTxnRequest(None), 3, "transactional_id"),  # type: ignore[arg-type]  # the wrong type is the case
        (EndTxnRequest("x", producer_id=2**63), 3, "producer_id"),
        (EndTxnRequest("x", producer_epoch=40_000), 0, "producer_epoch"),
        (EndTxnRequest("x"), 6, "no version 6"),
        (EndTxnRequest("x"), -1, "no version -1"),
        (EndTxnRequest("x", unknown_tagged_fields=((1, b""), (1, b""))), 3, "tag 1 occurs twice"),
    ],
)
def test_values_that_do_not_fit_are_errors(message: EndTxnRequest, version: int, pattern: str) -> None:
    with pytest.raises(Unencodable, match=pattern):
        encode(message, version)


def test_unknown_tagged_fields_are_kept_and_encoded_in_tag_order() -> None:
    partition = PartitionProduceResponse(
        current_leader=LeaderIdAndEpoch(1, 2), unknown_tagged_fields=((3, b"abc"), (700, b""))
    )
    message = ProduceResponse([TopicProduceResponse("t", partition_responses=[partition])])
    data = encode(message, 10)
    decoded = decode(ProduceResponse, 10, data)
    assert decoded == message
    assert encode(decoded, 10) == data
    # Version 9 has no tagged fields, so all three tags are unknown.
    plain = decode(ProduceResponse, 9, data).responses[0].partition_responses[0]
    assert [tag for tag, _ in plain.unknown_tagged_fields] == [0, 3, 700]
    assert plain.current_leader == LeaderIdAndEpoch()


def test_a_tagged_field_at_its_default_is_left_out() -> None:
    empty = encode(FetchResponse(responses=[FetchableTopicResponse("t", partitions=[PartitionData()])]), 12)
    diverging = PartitionData(diverging_epoch=EpochEndOffset(1, 5))
    message = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[diverging])])
    assert len(encode(message, 12)) == len(empty) + 2 + 13  # tag, size; int32, int64, empty tagged section
    assert decode(FetchResponse, 12, encode(message, 12)).responses[0].partitions[0].diverging_epoch.end_offset == 5


def test_null_struct_is_encoded_as_minus_one() -> None:
    assert encode(DescribeTopicPartitionsRequest(), 0).hex() == "01000007d0ff00"
    request = DescribeTopicPartitionsRequest(cursor=RequestCursor("t", 3))
    assert encode(request, 0).hex() == "01000007d001" + "0274" + "00000003" + "00" + "00"
    assert decode(DescribeTopicPartitionsRequest, 0, encode(request, 0)) == request


def test_nullable_structs_in_a_tagged_field_are_marked_by_an_unsigned_varint() -> None:
    base = ConsumerGroupMemberMetadataValue()
    # The default is an empty struct, so null is encoded: tag 0, size 1, value 0.
    assert encode(base, 0).endswith(bytes.fromhex("00"))
    null = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert encode(null, 0).endswith(bytes.fromhex("01" + "00" + "01" + "00"))
    present = ConsumerGroupMemberMetadataValue(classic_member_metadata=ClassicMemberMetadata(5))
    assert encode(present, 0).endswith(bytes.fromhex("01" + "00" + "07" + "01" + "00000005" + "01" + "00"))
    for message in (base, null, present):
        assert decode(ConsumerGroupMemberMetadataValue, 0, encode(message, 0)) == message


def test_records_are_decoded_as_views_and_other_fields_are_copied() -> None:
    data = bytearray(encode(produce(b"records"), 9))
    records = decode(ProduceRequest, 9, data).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"records"
    data[data.index(b"records")] = ord("R")
    assert bytes(records) == b"Records"


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize("size", [0, 4_095, 4_096, 100_000])
def test_chunks_equal_the_encoding_and_large_records_are_not_copied(size: int, version: int) -> None:
    message = produce(bytes(size))
    message.topic_data.append(TopicProduceData(name="u", partition_data=[PartitionProduceData(1, None)]))
    chunks = encode_chunks(message, version)
    assert b"".join(chunks) == encode(message, version)
    records = message.topic_data[0].partition_data[0].records
    assert any(chunk is records for chunk in chunks) == (size >= 4_096)
    assert len(chunks) == (3 if size >= 4_096 else 1)


def test_large_last_field_leaves_no_empty_chunk() -> None:
    message = produce(bytes(8_192))
    assert [len(chunk) > 0 for chunk in encode_chunks(message, 3)] == [True, True]


def test_decode_prefix_returns_the_end_of_the_message() -> None:
    data = b"??" + encode(EndTxnResponse(5, 51), 3) + b"rest"
    message, end = decode_prefix(EndTxnResponse, 3, data, 2)
    assert (message.error_code, data[end:]) == (51, b"rest")


def test_client_id_is_never_a_compact_string() -> None:
    assert encode(RequestHeader(18, 3, 1, "ab"), 2).hex() == "00120003000000010002616200"
    assert encode(RequestHeader(18, 3, 1, None), 2).hex() == "0012000300000001ffff00"


@pytest.mark.parametrize(
    ("api_key", "version", "request_header", "response_header"),
    [(0, 8, 1, 0), (0, 9, 2, 1), (18, 2, 1, 0), (18, 3, 2, 0), (17, 1, 1, 0), (26, 3, 2, 1), (26, 99, 2, 1)],
)
def test_header_version_follows_api_and_version(
    api_key: int, version: int, request_header: int, response_header: int
) -> None:
    assert request_header_version(api_key, version) == request_header
    assert response_header_version(api_key, version) == response_header


def test_encoded_response_begins_with_its_header() -> None:
    assert (
        b"".join(encode_response(26, 3, 7, EndTxnResponse(0, 48))).hex()
        == "00000007" + "00" + "00000000" + "0030" + "00"
    )
    assert b"".join(encode_response(26, 0, 7, EndTxnResponse(0, 48))).hex() == "00000007" + "00000000" + "0030"
    assert b"".join(encode_response(18, 3, 7, ApiVersionsResponse())).startswith(
        bytes.fromhex("00000007" + "0000" + "01")
    )


def test_every_api_has_a_request_and_a_response() -> None:
    for api_key in APIS:
        assert request_class(api_key).API_KEY == response_class(api_key).API_KEY == api_key
        assert request_class(api_key).MAX_VERSION == response_class(api_key).MAX_VERSION
    with pytest.raises(KeyError):
        request_class(99)


def test_message_without_versions_cannot_be_encoded_or_decoded() -> None:
    leader_and_isr = request_class(4)
    with pytest.raises(Unencodable):
        encode(leader_and_isr(), 0)
    with pytest.raises(Malformed):
        decode(leader_and_isr, 0, b"")


@pytest.mark.parametrize(("elements", "accepted"), [(1_000_000, True), (1_000_001, False)])
def test_array_has_at_most_a_million_elements(elements: int, accepted: bool) -> None:
    strings = unsigned_varint(elements + 1) + b"\x01" * elements + b"\x01\x00"
    numbers = b"\x02\x02t" + unsigned_varint(elements + 1) + bytes(4 * elements) + bytes(2)
    if accepted:
        assert len(decode(ListGroupsRequest, 5, strings).states_filter) == elements
        assert len(decode(DescribeProducersRequest, 0, numbers).topics[0].partition_indexes) == elements
        return
    for cls, version, data in ((ListGroupsRequest, 5, strings), (DescribeProducersRequest, 0, numbers)):
        with pytest.raises(Malformed, match="length 1000001 exceeds"):
            decode(cls, version, data)


@pytest.mark.parametrize(("fields", "accepted"), [(10_000, True), (10_001, False)])
def test_struct_has_at_most_ten_thousand_tagged_fields(fields: int, accepted: bool) -> None:
    tagged = b"".join(unsigned_varint(tag) + b"\x00" for tag in range(fields))
    data = b"\x01\x01" + unsigned_varint(fields) + tagged
    if accepted:
        assert len(decode(ListGroupsRequest, 5, data).unknown_tagged_fields) == fields
    else:
        with pytest.raises(Malformed, match="length 10001 exceeds"):
            decode(ListGroupsRequest, 5, data)


def test_any_byte_except_zero_is_true() -> None:
    data = bytearray(encode(EndTxnRequest("x", committed=True), 0))
    data[-1] = 2
    assert decode(EndTxnRequest, 0, data).committed is True


def test_empty_tagged_section_is_required_in_flexible_versions() -> None:
    with pytest.raises(Malformed):
        decode(ApiVersionsRequest, 3, b"\x01\x01")
