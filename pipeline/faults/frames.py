"""What the relay understands of the frames that pass it: enough to stay in the path, and to know a commit. Pure."""

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

METADATA, FIND_COORDINATOR, END_TXN, DESCRIBE_CLUSTER = 3, 10, 26, 60
NAMING_APIS = frozenset({METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER})
"""The APIs whose answers tell a client where brokers are."""

Address = tuple[str, int]


class Endpoint(Protocol):
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Sent:
    """The fixed part of a request's header: what is needed to understand its answer."""

    api_key: int
    version: int
    correlation_id: int


def address(text: str) -> Address:
    """host:port as a pair."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def read_request(frame: bytes) -> Sent:
    """``frame`` without its size prefix, as everywhere here."""
    return Sent(*struct.unpack_from(">hhi", frame))


def read_correlation_id(frame: bytes) -> int:
    """Of an answer."""
    correlation_id: int = struct.unpack_from(">i", frame)[0]
    return correlation_id


def read_end_txn(frame: bytes, sent: Sent) -> EndTxnRequest:
    header_version = request_header_version(END_TXN, sent.version)
    _, start = decode_prefix(RequestHeader, header_version, frame)
    return decode(EndTxnRequest, sent.version, frame[start:])


def read_end_txn_error(frame: bytes, sent: Sent) -> int:
    """The error code in the answer to an EndTxn; 0 is done."""
    _, start = decode_prefix(ResponseHeader, response_header_version(END_TXN, sent.version), frame)
    return decode(EndTxnResponse, sent.version, frame[start:]).error_code


def addresses(frame: bytes, sent: Sent) -> list[Address]:
    """Where the answer says that brokers are, without repetition and in order."""
    _, message, _ = open_answer(frame, sent)
    return list(dict.fromkeys((endpoint.host, endpoint.port) for endpoint in endpoints(message)))


def redirect(frame: bytes, sent: Sent, instead: Callable[[Address], Address]) -> bytes:
    """The same answer with other addresses."""
    header, message, start = open_answer(frame, sent)
    for endpoint in endpoints(message):
        endpoint.host, endpoint.port = instead((endpoint.host, endpoint.port))
    return header[:start] + encode(message, sent.version)


def open_answer(frame: bytes, sent: Sent) -> tuple[bytes, Message, int]:
    _, start = decode_prefix(ResponseHeader, response_header_version(sent.api_key, sent.version), frame)
    return frame, decode(response_class(sent.api_key), sent.version, frame[start:]), start


def endpoints(message: Message) -> list[Endpoint]:
    """All places of a naming answer where a host and a port stand; an unknown coordinator has port -1."""
    nested = [*getattr(message, "brokers", ()), *getattr(message, "coordinators", ())]
    own = [message] if hasattr(message, "host") else []
    return [endpoint for endpoint in (*own, *nested) if endpoint.host and endpoint.port > 0]
