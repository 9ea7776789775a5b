"""Frames of the relay: broker addresses are replaced in all versions of responses, and EndTxn is decoded."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.faults.frames import (
    APIS_WITH_BROKER_ADDRESSES,
    addresses,
    read_correlation_id,
    read_end_txn,
    read_end_txn_error,
    read_request,
    replace_addresses,
)
from odradek.protocol.codec import encode, request_header_version, response_header_version
from odradek.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.messages.fetch import NodeEndpoint as FetchedEndpoint
from odradek.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from odradek.protocol.messages.headers import RequestHeader, ResponseHeader
from odradek.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from odradek.protocol.messages.produce import NodeEndpoint, ProduceResponse

if TYPE_CHECKING:
    from odradek.protocol.schema import Message


def request_frame(message: Message, version: int) -> bytes:
    header = RequestHeader(message.API_KEY, version, 42, "client")
    return encode(header, request_header_version(message.API_KEY, version)) + encode(message, version)


def response_frame(message: Message, version: int) -> bytes:
    return encode(ResponseHeader(42), response_header_version(message.API_KEY, version)) + encode(message, version)


def responses_with(*addresses: tuple[str, int]) -> list[tuple[Message, int]]:
    """Return each response that contains broker addresses, in each version, with these addresses."""
    host, port = addresses[0]
    metadata = MetadataResponse(
        brokers=[MetadataResponseBroker(node, *address) for node, address in enumerate(addresses)]
    )
    described = DescribeClusterResponse(
        brokers=[DescribeClusterBroker(node, *address) for node, address in enumerate(addresses)]
    )
    single = FindCoordinatorResponse(host=host, port=port)
    several = FindCoordinatorResponse(
        coordinators=[Coordinator("x", node, *address) for node, address in enumerate(addresses)]
    )
    produced = ProduceResponse(node_endpoints=[NodeEndpoint(node, *address) for node, address in enumerate(addresses)])
    fetched = FetchResponse(node_endpoints=[FetchedEndpoint(node, *address) for node, address in enumerate(addresses)])
    return [
        *((produced, version) for version in range(10, ProduceResponse.MAX_VERSION + 1)),
        *((fetched, version) for version in range(16, FetchResponse.MAX_VERSION + 1)),
        *((metadata, version) for version in range(MetadataResponse.MIN_VERSION, MetadataResponse.MAX_VERSION + 1)),
        *((described, version) for version in range(DescribeClusterResponse.MAX_VERSION + 1)),
        *((single, version) for version in range(4)),
        *((several, version) for version in range(4, FindCoordinatorResponse.MAX_VERSION + 1)),
    ]


RESPONSES = responses_with(("one", 9092), ("two", 9093))


@pytest.mark.parametrize("number", range(len(RESPONSES)))
def test_replacement_changes_only_the_broker_addresses_of_a_response(number: int) -> None:
    message, version = RESPONSES[number]
    assert message.API_KEY in APIS_WITH_BROKER_ADDRESSES
    frame = response_frame(message, version)
    request = read_request(struct.pack(">hhi", message.API_KEY, version, 42))
    before = addresses(frame, request)
    assert set(before) <= {("one", 9092), ("two", 9093)}
    assert ("one", 9092) in before
    changed = replace_addresses(frame, request, lambda address: (f"relay-{address[0]}", address[1] + 1000))
    assert addresses(changed, request) == [(f"relay-{host}", port + 1000) for host, port in before]
    assert (
        replace_addresses(changed, request, lambda address: (address[0].removeprefix("relay-"), address[1] - 1000))
        == frame
    )
    assert read_correlation_id(changed) == 42


def test_unknown_coordinator_is_no_broker_address() -> None:
    for message, version in (
        (FindCoordinatorResponse(error_code=15, host="", port=-1), 2),
        (FindCoordinatorResponse(), 4),
    ):
        request = read_request(struct.pack(">hhi", message.API_KEY, version, 42))
        assert addresses(response_frame(message, version), request) == []


@pytest.mark.parametrize("version", range(EndTxnRequest.MAX_VERSION + 1))
def test_end_txn_request_and_response_are_decoded(version: int) -> None:
    for committed in (True, False):
        frame = request_frame(EndTxnRequest("id", 7, 3, committed), version)
        request = read_request(frame)
        assert (request.api_key, request.version, request.correlation_id) == (26, version, 42)
        assert read_end_txn(frame, request) == EndTxnRequest("id", 7, 3, committed)
        assert read_end_txn_error(response_frame(EndTxnResponse(error_code=47), version), request) == 47
