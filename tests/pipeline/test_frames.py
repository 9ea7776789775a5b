"""The relay must stay in the path whatever version a client speaks, and know a commit when it sees one."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.faults.frames import (
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
from odradek.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from odradek.protocol.messages.headers import RequestHeader, ResponseHeader
from odradek.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker

if TYPE_CHECKING:
    from odradek.protocol.schema import Message


def request_frame(message: Message, version: int) -> bytes:
    header = RequestHeader(message.API_KEY, version, 42, "client")
    return encode(header, request_header_version(message.API_KEY, version)) + encode(message, version)


def answer_frame(message: Message, version: int) -> bytes:
    return encode(ResponseHeader(42), response_header_version(message.API_KEY, version)) + encode(message, version)


def cluster(*places: tuple[str, int]) -> list[tuple[Message, int]]:
    """Every naming answer in every version, saying these places."""
    host, port = places[0]
    metadata = MetadataResponse(brokers=[MetadataResponseBroker(node, *place) for node, place in enumerate(places)])
    described = DescribeClusterResponse(
        brokers=[DescribeClusterBroker(node, *place) for node, place in enumerate(places)]
    )
    single = FindCoordinatorResponse(host=host, port=port)
    several = FindCoordinatorResponse(
        coordinators=[Coordinator("x", node, *place) for node, place in enumerate(places)]
    )
    return [
        *((metadata, version) for version in range(MetadataResponse.MIN_VERSION, MetadataResponse.MAX_VERSION + 1)),
        *((described, version) for version in range(DescribeClusterResponse.MAX_VERSION + 1)),
        *((single, version) for version in range(4)),
        *((several, version) for version in range(4, FindCoordinatorResponse.MAX_VERSION + 1)),
    ]


ANSWERS = cluster(("one", 9092), ("two", 9093))


@pytest.mark.parametrize("number", range(len(ANSWERS)))
def test_answers_that_name_brokers_are_redirected_and_nothing_else_changes(number: int) -> None:
    message, version = ANSWERS[number]
    frame = answer_frame(message, version)
    sent = read_request(struct.pack(">hhi", message.API_KEY, version, 42))
    before = addresses(frame, sent)
    assert set(before) <= {("one", 9092), ("two", 9093)}
    assert ("one", 9092) in before
    changed = replace_addresses(frame, sent, lambda address: (f"relay-{address[0]}", address[1] + 1000))
    assert addresses(changed, sent) == [(f"relay-{host}", port + 1000) for host, port in before]
    assert (
        replace_addresses(changed, sent, lambda address: (address[0].removeprefix("relay-"), address[1] - 1000))
        == frame
    )
    assert read_correlation_id(changed) == 42


def test_an_unknown_coordinator_is_no_place() -> None:
    for message, version in (
        (FindCoordinatorResponse(error_code=15, host="", port=-1), 2),
        (FindCoordinatorResponse(), 4),
    ):
        sent = read_request(struct.pack(">hhi", message.API_KEY, version, 42))
        assert addresses(answer_frame(message, version), sent) == []


@pytest.mark.parametrize("version", range(EndTxnRequest.MAX_VERSION + 1))
def test_an_end_txn_and_its_answer_are_understood(version: int) -> None:
    for committed in (True, False):
        frame = request_frame(EndTxnRequest("id", 7, 3, committed), version)
        sent = read_request(frame)
        assert (sent.api_key, sent.version, sent.correlation_id) == (26, version, 42)
        assert read_end_txn(frame, sent) == EndTxnRequest("id", 7, 3, committed)
        assert read_end_txn_error(answer_frame(EndTxnResponse(error_code=47), version), sent) == 47
