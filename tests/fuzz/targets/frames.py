"""Fuzz targets of byte streams of connections. The first byte of an input is the seed of the sizes of its pieces."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from odradek.protocol.client import ClientConnection
from odradek.protocol.codec import encode_response
from odradek.protocol.connection import ServerConnection
from odradek.protocol.errors import Malformed
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.fuzz.mutations import damaged
from tests.fuzz.target import KIB, Bound, Target
from tests.support.raw_client import encode_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.protocol.schema import Message

FRAME_BYTES_MAX = 120_000
LARGE_KEY_BYTES_MAX, SMALL_KEY_BYTES_MAX = 100_000, 40_000
"""Maximum frames of odd and of even API keys. Both exceed the receive buffer of a connection."""
REQUESTS: tuple[tuple[Message, int], ...] = (
    (ApiVersionsRequest("fuzz", "1"), 3),
    (MetadataRequest([]), 12),
    (FindCoordinatorRequest(key="g"), 2),
)
RESPONSES = (ApiVersionsResponse(), MetadataResponse(), FindCoordinatorResponse())
PIECES_MAX = 500
"""Maximum pieces of a stream, about."""


def limit_of_key(key: int) -> int:
    return LARGE_KEY_BYTES_MAX if key % 2 else SMALL_KEY_BYTES_MAX


def feed(
    connection: ServerConnection | ClientConnection, take: Callable[[], Any], stream: bytes, size: Callable[[], int]
) -> list[Any]:
    """Pass the stream to a connection in pieces of the given sizes. Return what it takes, and its error."""
    taken: list[Any] = []
    at = 0
    try:
        while at < len(stream):
            buffer = connection.get_buffer(-1)
            piece = stream[at : at + min(size(), len(buffer))]
            buffer[: len(piece)] = piece
            connection.buffer_updated(len(piece))
            at += len(piece)
            while (one := take()) is not None:
                taken.append(one)
    except Malformed as error:
        taken.append(str(error))
    return taken


def serve(stream: bytes, size: Callable[[], int]) -> list[Any]:
    connection = ServerConnection(request_bytes_max=FRAME_BYTES_MAX, limit_of_key=limit_of_key)
    taken = feed(connection, connection.next_request, stream, size)
    connection.close()
    return taken


def receive(stream: bytes, size: Callable[[], int]) -> list[Any]:
    connection = ClientConnection(response_bytes_max=FRAME_BYTES_MAX)
    for request, version in REQUESTS:
        connection.send(request, version, "fuzz")
    return feed(connection, connection.next_response, stream, size)


def run(data: bytes, connection: Callable[[bytes, Callable[[], int]], list[Any]]) -> int:
    """Process a stream in large and in small pieces, which must give the same frames and the same error."""
    if not data:
        return 0
    rng = Random(data[0])
    largest = max(rng.choice((1, 7, 100, 40_000)), len(data) // PIECES_MAX)
    whole = connection(data[1:], lambda: FRAME_BYTES_MAX)
    pieces = connection(data[1:], lambda: rng.randint(1, largest))
    assert whole == pieces, f"{whole[-1:]} is not {pieces[-1:]}"
    return 0


def request_seeds() -> list[bytes]:
    frames = [encode_request(request, version, number, "fuzz") for number, (request, version) in enumerate(REQUESTS)]
    large = [bytes((0, 0, 0x9C, 0)) + key.to_bytes(2, "big") + bytes(39_934) for key in (1, 2)]
    return [b"\x03" + b"".join(frames), *(bytes((number,)) + frame for number, frame in enumerate([*frames, *large]))]


def response_seeds() -> list[bytes]:
    frames = []
    for number, ((request, version), response) in enumerate(zip(REQUESTS, RESPONSES, strict=True)):
        body = b"".join(encode_response(request.API_KEY, version, number, response))
        frames.append(len(body).to_bytes(4, "big") + body)
    return [b"\x05" + b"".join(frames[:count]) for count in (1, 2, 3)]


def mutate(data: bytes, rng: Random) -> bytes:
    return bytes((rng.randrange(256),)) + damaged(data[1:], rng)


# Each receive buffer has 32 KiB, and doubles when a client sends many bytes without a frame.
REQUEST_FRAMES = Target(
    "request-frames", lambda data: run(data, serve), request_seeds, memory=Bound(512 * KIB, 64),
    steps=Bound(5_000, 120), bytes_max=48 * KIB, mutate=mutate,
)  # fmt: skip
RESPONSE_FRAMES = Target(
    "response-frames", lambda data: run(data, receive), response_seeds, memory=Bound(512 * KIB, 128),
    steps=Bound(20_000, 120), mutate=mutate,
)  # fmt: skip
