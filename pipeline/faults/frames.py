"""Decode and change the frames that pass the relay: broker addresses in responses, EndTxn requests and responses.

A frame is one request or response without its size prefix. All functions are pure.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from odradek.protocol.codec import decode, decode_prefix, encode, request_header_version, response_header_version
from odradek.protocol.messages import response_class
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.headers import RequestHeader, ResponseHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.protocol.schema import Message

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, END_TXN, DESCRIBE_CLUSTER = 0, 1, 3, 10, 26, 60
APIS_WITH_BROKER_ADDRESSES = frozenset({PRODUCE, FETCH, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER})
"""Keys of the APIs whose responses contain addresses of brokers.

Responses to Produce and Fetch contain the address of a new leader (KIP-951).
"""

Address = tuple[str, int]


class Endpoint(Protocol):
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """Fixed part of a request header, which is necessary to decode the response."""

    api_key: int
    version: int
    correlation_id: int


def address(text: str) -> Address:
    """Parse ``host:port``."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def read_request(frame: bytes) -> RequestInfo:
    """Decode the fixed part of a request's header."""
    return RequestInfo(*struct.unpack_from(">hhi", frame))


def read_correlation_id(frame: bytes) -> int:
    """Return the correlation id of a response."""
    correlation_id: int = struct.unpack_from(">i", frame)[0]
    return correlation_id


def read_end_txn(frame: bytes, request: RequestInfo) -> EndTxnRequest:
    """Decode an EndTxn request."""
    header_version = request_header_version(END_TXN, request.version)
    _, start = decode_prefix(RequestHeader, header_version, frame)
    return decode(EndTxnRequest, request.version, frame[start:])


def read_end_txn_error(frame: bytes, request: RequestInfo) -> int:
    """Return the error code of an EndTxn response. 0 is success."""
    _, start = decode_prefix(ResponseHeader, response_header_version(END_TXN, request.version), frame)
    return decode(EndTxnResponse, request.version, frame[start:]).error_code


def addresses(frame: bytes, request: RequestInfo) -> list[Address]:
    """Return the distinct broker addresses of a response, in the order of the response."""
    message, _ = decode_response(frame, request)
    return list(dict.fromkeys((endpoint.host, endpoint.port) for endpoint in endpoints(message)))


def replace_addresses(frame: bytes, request: RequestInfo, replacement: Callable[[Address], Address]) -> bytes:
    """Return the response with each broker address replaced by `replacement(address)`."""
    message, start = decode_response(frame, request)
    for endpoint in endpoints(message):
        endpoint.host, endpoint.port = replacement((endpoint.host, endpoint.port))
    return frame[:start] + encode(message, request.version)


def decode_response(frame: bytes, request: RequestInfo) -> tuple[Message, int]:
    """Return the decoded response and the length of its header in bytes."""
    _, start = decode_prefix(ResponseHeader, response_header_version(request.api_key, request.version), frame)
    return decode(response_class(request.api_key), request.version, frame[start:]), start


def endpoints(message: Message) -> list[Endpoint]:
    """Return all parts of a response that have a host and a port. An unknown coordinator (port -1) is left out."""
    nested = [
        endpoint for name in ("brokers", "coordinators", "node_endpoints") for endpoint in getattr(message, name, ())
    ]
    own = [message] if hasattr(message, "host") else []
    return [endpoint for endpoint in (*own, *nested) if endpoint.host and endpoint.port > 0]
