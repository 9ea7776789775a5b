"""Connections of client and server: frames, headers, and the order of responses."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.client import ClientConnection
from odradek.protocol.codec import decode, encode, encode_response
from odradek.protocol.connection import (
    HEADER_TAG_BYTES_MAX,
    HEADER_TAGS_MAX,
    JOIN_BYTES_MAX,
    RequestFrame,
    ServerConnection,
)
from odradek.protocol.errors import ErrorCode, Malformed
from odradek.protocol.framing import LARGE_FRAME_START_BYTES, RECEIVE_BUFFER_BYTES, FrameReader
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.headers import RequestHeader
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.primitives import unsigned_varint
from tests.support.effort import effort

REQUEST_BYTES_MAX = 1_048_576
SIZES = [
    0,
    1,
    100,
    RECEIVE_BUFFER_BYTES - 40,
    RECEIVE_BUFFER_BYTES,
    RECEIVE_BUFFER_BYTES + 1,
    3 * LARGE_FRAME_START_BYTES,
]


def server() -> ServerConnection:
    return ServerConnection(request_bytes_max=REQUEST_BYTES_MAX)


def client() -> ClientConnection:
    return ClientConnection(response_bytes_max=REQUEST_BYTES_MAX)


def received_requests(connection: ServerConnection) -> list[RequestFrame]:
    frames = []
    while (frame := connection.next_request()) is not None:
        frames.append(frame)
    return frames


def frame_of(body: bytes, api_key: int = 26, version: int = 0, client_id: bytes | None = b"me") -> bytes:
    header = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes((0, 0, 0, 9))
    header += b"\xff\xff" if client_id is None else len(client_id).to_bytes(2, "big") + client_id
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


@settings(max_examples=effort(20), deadline=None)
@given(
    st.lists(st.sampled_from(SIZES) | st.integers(0, 5_000), min_size=1, max_size=6),
    st.lists(st.integers(1, 70_000), min_size=1, max_size=8),
    st.booleans(),
)
def test_any_split_of_the_bytes_gives_the_same_frames(sizes: list[int], piece_sizes: list[int], greedy: bool) -> None:
    bodies = [bytes([index]) * size for index, size in enumerate(sizes)]
    stream = b"".join(frame_of(body) for body in bodies)
    connection = server()
    frames: list[RequestFrame] = []
    position = turn = 0
    while position < len(stream):
        piece = stream[position : position + piece_sizes[turn % len(piece_sizes)]]
        position += len(piece)
        turn += 1
        if greedy:
            connection.receive_data(piece)  # the reader is slower than the socket
        else:
            while piece:
                buffer = connection.get_buffer(-1)
                assert len(buffer) > 0
                size = min(len(buffer), len(piece))
                buffer[:size] = piece[:size]
                connection.buffer_updated(size)
                piece = piece[size:]
                frames += received_requests(connection)
        if not greedy or turn % 2 == 0:
            frames += received_requests(connection)
    frames += received_requests(connection)
    assert [bytes(frame.body) for frame in frames] == bodies
    assert [frame.seq for frame in frames] == list(range(len(bodies)))
    assert not connection.frame_started
    assert connection.buffered == 0


def test_a_body_stays_valid_when_more_bytes_arrive() -> None:
    connection = server()
    for size in SIZES:
        connection.receive_data(frame_of(b"a" * size))
        frame = connection.next_request()
        assert frame is not None
        connection.receive_data(frame_of(b"b" * size))
        assert bytes(frame.body) == b"a" * size
        assert connection.next_request() is not None


def test_headers_of_versions_1_and_2_are_parsed() -> None:
    connection = server()
    connection.receive_data(frame_of(b"body"))
    connection.receive_data(frame_of(b"\x00body", version=3))
    connection.receive_data(frame_of(b"\x01\x07\x02xybody", version=3))
    connection.receive_data(frame_of(b"body", client_id=None))
    frames = received_requests(connection)
    assert [bytes(frame.body) for frame in frames] == [b"body"] * 4
    assert [frame.client_id for frame in frames] == ["me", "me", "me", None]
    assert {(frame.api_key, frame.correlation_id) for frame in frames} == {(26, 9)}
    assert frames[0].size == len(frame_of(b"body")) - 4


def test_request_with_an_unknown_api_key_is_returned_to_the_caller() -> None:
    connection = server()
    connection.receive_data(frame_of(b"unknown body", api_key=12_345, version=3))
    connection.receive_data(frame_of(b"unknown body", api_key=-1, version=-1))
    assert [(frame.api_key, frame.api_version) for frame in received_requests(connection)] == [(12_345, 3), (-1, -1)]


@pytest.mark.parametrize(
    "frame",
    [
        bytes.fromhex("00000008 001a0000 00000009"),  # ends before the client id
        bytes.fromhex("0000000a 001a0000 00000009 0005"),  # client id past the end
        bytes.fromhex("0000000a 001a0000 00000009 fffe"),  # client id of length -2
        frame_of(b"", client_id=b"\xff\xfe"),
        frame_of(b"", version=3),  # no tagged section
        frame_of(b"\x02\x05\x00\x05\x00", version=3),  # the same tag twice
    ],
)
def test_invalid_header_is_malformed(frame: bytes) -> None:
    connection = server()
    connection.receive_data(frame)
    with pytest.raises(Malformed):
        connection.next_request()


def tagged(values: list[bytes]) -> bytes:
    fields = (unsigned_varint(tag) + unsigned_varint(len(value)) + value for tag, value in enumerate(values))
    return unsigned_varint(len(values)) + b"".join(fields)


SIZES_OF_ONE_TAG = 1 + 1 + 3
"""Bytes of the count, the tag and the size of one tagged field of LARGEST_TAG."""
LARGEST_TAG = bytes(HEADER_TAG_BYTES_MAX - SIZES_OF_ONE_TAG)


@pytest.mark.parametrize("values", [[b""] * HEADER_TAGS_MAX, [LARGEST_TAG]])
def test_header_with_tagged_fields_at_the_limits_is_parsed(values: list[bytes]) -> None:
    connection = server()
    connection.receive_data(frame_of(tagged(values) + b"body", version=3))
    [frame] = received_requests(connection)
    assert bytes(frame.body) == b"body"


@pytest.mark.parametrize("values", [[b""] * (HEADER_TAGS_MAX + 1), [LARGEST_TAG + b"x"]])
def test_header_with_tagged_fields_beyond_the_limits_is_malformed(values: list[bytes]) -> None:
    connection = server()
    connection.receive_data(frame_of(tagged(values) + b"body", version=3))
    with pytest.raises(Malformed, match="eader"):
        connection.next_request()


def test_partial_frame_is_reported_as_started() -> None:
    connection = server()
    data = frame_of(bytes(100_000))
    assert not connection.frame_started
    for position in (0, 3, 50_000):
        connection.receive_data(data[position : {0: 3, 3: 50_000, 50_000: 99_999}[position]])
        assert connection.next_request() is None
        assert connection.frame_started
    connection.receive_data(data[99_999:])
    assert connection.next_request() is not None
    assert not connection.frame_started


def test_raised_request_limit_applies_to_later_requests() -> None:
    connection = ServerConnection(request_bytes_max=100)
    connection.set_request_bytes_max(1_000)
    connection.receive_data(frame_of(bytes(500)))
    assert connection.next_request() is not None


def test_memory_follows_the_received_bytes_and_not_the_frame_size() -> None:
    connection = server()
    tracemalloc.start()
    try:
        connection.receive_data(REQUEST_BYTES_MAX.to_bytes(4, "big"))
        assert connection.next_request() is None
        connection.receive_data(bytes(10))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * LARGE_FRAME_START_BYTES


@given(st.permutations(range(5)), st.sets(st.integers(0, 4)))
def test_responses_are_sent_in_the_order_of_the_requests(order: list[int], silent: set[int]) -> None:
    connection = server()
    connection.receive_data(frame_of(b"") * 5)
    assert len(received_requests(connection)) == 5
    assert connection.inflight == 5
    sent = b""
    for number, seq in enumerate(order):
        connection.send_response(seq, None if seq in silent else [b"result %d" % seq])
        sent += b"".join(connection.data_to_send())
        completed = set(order[: number + 1])
        first_open = next((seq for seq in range(5) if seq not in completed), 5)
        assert connection.inflight == 5 - first_open
    assert sent == b"".join(b"\x00\x00\x00\x08result %d" % seq for seq in range(5) if seq not in silent)


def test_large_chunks_are_not_copied() -> None:
    connection = server()
    connection.receive_data(frame_of(b"") * 2)
    received_requests(connection)
    records, head = bytes(100_000), bytes(JOIN_BYTES_MAX + 1)
    connection.send_response(0, [b"head", records, b"tail"])
    connection.send_response(1, [head])
    chunks_out = connection.data_to_send()
    assert chunks_out[0] == (100_008).to_bytes(4, "big") + b"head"
    assert chunks_out[1] is records
    assert chunks_out[-1] is head
    assert connection.data_to_send() == []


def test_second_response_to_a_request_is_an_error() -> None:
    connection = server()
    connection.receive_data(frame_of(b"") * 2)
    received_requests(connection)
    connection.send_response(1, None)
    for seq in (1, 2, -1):
        with pytest.raises(AssertionError):
            connection.send_response(seq, None)


def test_client_and_server_exchange_requests_and_responses() -> None:
    client_side, server_side = client(), server()
    requests = [
        (EndTxnRequest("t", 1, 2, committed=True), 5),
        (EndTxnRequest("u", 1, 2, committed=False), 0),
        (ProduceRequest(acks=0, topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, b"r")])]), 9),
        (EndTxnRequest("v", 1, 2, committed=True), 3),
    ]
    for request, version in requests:
        silent = isinstance(request, ProduceRequest)
        _, data = client_side.send(request, version, "tester", expects_response=not silent)
        server_side.receive_data(data)
    assert client_side.inflight == 3
    for frame, (request, version) in zip(received_requests(server_side), requests, strict=True):
        assert (frame.api_key, frame.api_version, frame.client_id) == (request.API_KEY, version, "tester")
        assert encode(decode(type(request), version, frame.body), version) == encode(request, version)
        response_body = EndTxnResponse(error_code=frame.seq)
        chunks = encode_response(26, version, frame.correlation_id, response_body) if frame.api_key == 26 else None
        server_side.send_response(frame.seq, chunks)
    client_side.receive_data(b"".join(server_side.data_to_send()))
    responses = [client_side.next_response() for _ in range(4)]
    assert responses[3] is None
    assert [
        (response[0], response[1].error_code)
        for response in responses[:3]
        if response and isinstance(response[1], EndTxnResponse)
    ] == [
        (0, 0),
        (1, 1),
        (3, 3),
    ]
    assert client_side.inflight == 0


def test_api_versions_response_to_an_unsupported_version_is_decoded_as_version_0() -> None:
    connection = client()
    connection.send(ApiVersionsRequest("x", "1"), 4, None)
    response_body = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(18, 0, 3)])
    body = encode(response_body, 0)
    connection.receive_data((4 + len(body)).to_bytes(4, "big") + bytes(4) + body)
    response = connection.next_response()
    assert response is not None
    assert response[1] == response_body


@pytest.mark.parametrize(
    ("expected", "data"),
    [
        (False, "00000004 00000000"),
        (True, "00000006 00000001 0000"),
        (True, "0000000b 00000000 00 00000000 0000"),
        (True, "00000003 000000"),
        (True, "ffffffff"),
    ],
)
def test_unexpected_or_invalid_response_is_malformed(expected: bool, data: str) -> None:
    connection = client()
    if expected:
        connection.send(EndTxnRequest("t"), 3, None)
    connection.receive_data(bytes.fromhex(data))
    with pytest.raises(Malformed):
        connection.next_response()


def test_the_receive_buffer_shrinks_again_after_a_burst() -> None:
    frames = FrameReader(frame_bytes_max=REQUEST_BYTES_MAX, frame_bytes_min=0)
    burst = b"".join((1_000).to_bytes(4, "big") + bytes(1_000) for _ in range(200))
    frames.receive_data(burst)
    while frames.next_frame() is not None:
        pass
    assert frames.buffered == 0
    assert len(frames.get_buffer()) == RECEIVE_BUFFER_BYTES


@pytest.mark.parametrize("client_id", ["broker-1-replica-fetch", "", None])
@pytest.mark.parametrize(("version", "header_version"), [(1, 1), (3, 2)])
def test_requests_begin_with_the_header_of_their_version(
    client_id: str | None, version: int, header_version: int
) -> None:
    connection = client()
    request = EndTxnRequest(transactional_id="t", producer_id=4, producer_epoch=1, committed=True)
    for expected in range(2):
        correlation_id, data = connection.send(request, version, client_id)
        header = RequestHeader(EndTxnRequest.API_KEY, version, expected, client_id)
        body = encode(header, header_version) + encode(request, version)
        assert (correlation_id, data) == (expected, len(body).to_bytes(4, "big") + body)


def test_large_request_is_refused_by_the_limit_of_its_api_key_before_its_body_arrives() -> None:
    limits = {0: REQUEST_BYTES_MAX, 3: 100_000}
    size = (100_001).to_bytes(4, "big")
    connection = ServerConnection(request_bytes_max=REQUEST_BYTES_MAX, limit_of_key=limits.__getitem__)
    connection.receive_data(size + b"\x00")
    assert received_requests(connection) == []
    connection.receive_data(b"\x03")
    with pytest.raises(Malformed, match="API key 3 has 100001 bytes, allowed are 100000"):
        connection.next_request()
    produce = ServerConnection(request_bytes_max=REQUEST_BYTES_MAX, limit_of_key=limits.__getitem__)
    body = frame_of(bytes(100_001), api_key=0)
    produce.receive_data(body[:6])
    assert received_requests(produce) == []
    produce.receive_data(body[6:])
    assert [frame.size for frame in received_requests(produce)] == [len(body) - 4]
