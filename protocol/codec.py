"""Encode and decode messages.

For each (message class, version), one encoder and one decoder are compiled on first use (compile_encode,
compile_decode). If a version lacks a field, the decoder sets the field's default. The encoder then requires the default
value, unless the schema declares the field ignorable. Kafka does the same.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.protocol.compile_decode import compile_decoder
from odradek.protocol.compile_encode import compile_encoder
from odradek.protocol.errors import Malformed, Unencodable
from odradek.protocol.messages import APIS
from odradek.protocol.schema import Buffer, Message

if TYPE_CHECKING:
    from odradek.protocol.emitting import CompiledCodec

M = TypeVar("M", bound=Message)

API_VERSIONS_KEY: Final = 18
CORRELATION_ID: Final = struct.Struct(">i")
DECODE_ERRORS: Final = (struct.error, IndexError, ValueError)
ENCODE_ERRORS: Final = (struct.error, AttributeError, TypeError, ValueError, OverflowError)

_decoders: dict[tuple[type[Message], int], CompiledCodec] = {}
_encoders: dict[tuple[type[Message], int], CompiledCodec] = {}


def encode(message: Message, version: int) -> bytes:
    """Encode a message without header and size. Raise Unencodable if it cannot be encoded."""
    return b"".join(_pieces(message, version)[0])


def encode_chunks(message: Message, version: int) -> list[Buffer]:
    """Encode a message as chunks. Joined, they are the bytes that `encode` returns.

    Records and bytes fields of at least 4 KiB are chunks of their own, passed by reference. The caller must not change
    them until the chunks are written. Raise Unencodable if the message cannot be encoded.
    """
    pieces, large = _pieces(message, version)
    if not large:
        return [b"".join(pieces)]
    chunks: list[Buffer] = []
    start = 0
    for index in large:
        chunks += (b"".join(pieces[start:index]), pieces[index])
        start = index + 1
    if start < len(pieces):
        chunks.append(b"".join(pieces[start:]))
    return chunks


def decode(cls: type[M], version: int, data: Buffer) -> M:
    """Decode a message that occupies all of `data`. Records fields are views into `data`.

    Raise Malformed if `data` is not exactly one message, or if the message has no such version.
    """
    message, end = decode_prefix(cls, version, data)
    if end != len(data):
        raise Malformed(f"{cls.NAME} v{version}: {len(data) - end} bytes follow the message at byte {end}")
    return message


def decode_prefix(cls: type[M], version: int, data: Buffer, offset: int = 0) -> tuple[M, int]:
    """Decode the message at `offset`. Return the message and its end. Raise Malformed if it cannot be decoded."""
    codec = _decoders.get((cls, version))
    if codec is None:
        codec = _compile_decoder(cls, version)
    if type(data) is bytearray:
        data = memoryview(data)
    try:
        result: tuple[M, int] = codec.run(data, offset, len(data))
    except DECODE_ERRORS as error:
        field, position = codec.locate(error.__traceback__)
        raise Malformed(f"{codec.name}: {field} at byte {position}: {error}") from error
    return result


def encode_response(api_key: int, version: int, correlation_id: int, message: Message) -> list[Buffer]:
    """Encode response header and body as chunks (see `encode_chunks`), without the size. Raise Unencodable."""
    header = CORRELATION_ID.pack(correlation_id)
    if response_header_version(api_key, version) == 1:
        header += b"\x00"  # no tagged fields
    chunks = encode_chunks(message, version)
    chunks[0] = header + chunks[0]
    return chunks


def request_header_version(api_key: int, version: int) -> int:
    """Return 2 if the version is flexible, otherwise 1. Raise KeyError if Kafka does not define the API key."""
    flexible_min = APIS[api_key][2]
    return 2 if flexible_min is not None and version >= flexible_min else 1


def response_header_version(api_key: int, version: int) -> int:
    """Return 1 if the version is flexible, otherwise 0.

    ApiVersions responses always have header version 0, because the client does not know the broker's versions yet
    (KIP-511).
    """
    flexible_min = APIS[api_key][2]
    if api_key == API_VERSIONS_KEY or flexible_min is None or version < flexible_min:
        return 0
    return 1


def _pieces(message: Message, version: int) -> tuple[list[Buffer], list[int]]:
    codec = _encoders.get((type(message), version))
    if codec is None:
        codec = _compile_encoder(type(message), version)
    try:
        result: tuple[list[Buffer], list[int]] = codec.run(message)
    except ENCODE_ERRORS as error:
        field, _ = codec.locate(error.__traceback__)
        raise Unencodable(f"{codec.name}: {field}: {error}") from error
    return result


def _compile_decoder(cls: type[Message], version: int) -> CompiledCodec:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise Malformed(f"{cls.NAME} has no version {version}")
    codec = _decoders[cls, version] = compile_decoder(cls, version)
    return codec


def _compile_encoder(cls: type[Message], version: int) -> CompiledCodec:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise Unencodable(f"{cls.NAME} has no version {version}")
    codec = _encoders[cls, version] = compile_encoder(cls, version)
    return codec
