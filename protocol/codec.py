"""Encode and decode messages.

For each (message class, version), one encoder and one decoder are compiled on first use
(`odradek.protocol.compilation`). If a version lacks a field, the decoder sets the field's default. The encoder then
requires the default value, unless the schema declares the field ignorable. Kafka does the same.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from odradek.protocol.compilation.decoder import compile_decoder
from odradek.protocol.compilation.encoder import compile_elements_encoder, compile_encoder
from odradek.protocol.errors import Malformed, Unencodable
from odradek.protocol.messages import APIS
from odradek.protocol.schema import Buffer, Message, Packed, Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from odradek.protocol.compilation.emitting import CompiledCodec

M = TypeVar("M", bound=Message)

API_VERSIONS_KEY: Final = 18
CORRELATION_ID: Final = struct.Struct(">i")
DECODE_ERRORS: Final = (struct.error, IndexError, ValueError)
ENCODE_ERRORS: Final = (struct.error, AttributeError, TypeError, ValueError, OverflowError)
STRUCT_RANGE: Final = re.compile(r"'.' format requires (-?\d+) <= number <= (-?\d+)")
"""Text of struct.error for a number that a field of at most 32 bits cannot hold."""
STRUCT_RANGE_64: Final = "int too large to convert"
"""Text of struct.error for a number that a field of 64 bits cannot hold."""

CHARGE_UNLIMITED: Final = 1 << 62
"""Maximum charge of decoders that run without a limit."""

_decoders: dict[tuple[type[Message], int], CompiledCodec] = {}
_elements_encoders: dict[tuple[type[Message], int, type[Struct]], CompiledCodec] = {}
_sliced_encoders: dict[tuple[type[Message], int], CompiledCodec] = {}
_sliced_decoders: dict[tuple[type[Message], int], CompiledCodec] = {}
_encoders: dict[tuple[type[Message], int], CompiledCodec] = {}


def encode(message: Message, version: int) -> bytes:
    """Encode a message without header and size. Raise Unencodable if it cannot be encoded."""
    return b"".join(_pieces(message, version)[0])


def encode_chunks(message: Message, version: int) -> list[Buffer]:
    """Encode a message as chunks. Joined, they are the bytes that `encode` returns.

    Records and bytes fields of at least 4 KiB are chunks of their own, passed by reference. The caller must not change
    them until the chunks are written. Raise Unencodable if the message cannot be encoded.
    """
    return _chunks(*_pieces(message, version))


def _chunks(pieces: list[Buffer], large: list[int]) -> list[Buffer]:
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
        message, end, _ = codec.run(data, offset, len(data), CHARGE_UNLIMITED)
    except DECODE_ERRORS as error:
        raise _malformed(codec, error) from error
    return message, end


def decode_charged(cls: type[M], version: int, data: Buffer, charge_max: int, offset: int = 0) -> tuple[M, int]:
    """Decode the message at `offset`. Return the message and its charge in bytes.

    The charge is an upper bound of the memory of all elements of arrays (`odradek.protocol.compilation.charges`). It
    does not include `data`. Raise ChargeExceeded before it exceeds `charge_max`, and Malformed if the message cannot be
    decoded.
    """
    codec = _decoders.get((cls, version))
    if codec is None:
        codec = _compile_decoder(cls, version)
    try:
        message, _, rest = codec.run(data, offset, len(data), charge_max)
    except DECODE_ERRORS as error:
        raise _malformed(codec, error) from error
    return message, charge_max - rest


class SlicedDecoding(Generic[M]):
    """Decoding of one large message in slices. The caller lets other work run between two slices."""

    __slots__ = ("__weakref__", "_charge_max", "_codec", "_run", "charge", "message")

    def __init__(self, cls: type[M], version: int, data: Buffer, charge_max: int) -> None:
        codec = _sliced_decoders.get((cls, version))
        if codec is None:
            codec = _sliced_decoders[cls, version] = compile_decoder(cls, version, sliced=True)
        self._codec = codec
        self._charge_max = charge_max
        self._run = codec.run(data, 0, len(data), charge_max)
        self.message: M | None = None
        """The message after the last slice; None before."""
        self.charge = 0
        """Charge of the elements decoded so far, in bytes."""

    def run_slice(self) -> bool:
        """Decode the next slice. Return True if the message is complete.

        Raise ChargeExceeded before the charge exceeds its maximum, and Malformed if the message cannot be decoded.
        """
        try:
            self.charge = self._charge_max - next(self._run)
        except StopIteration as stop:
            self.message, _, rest = stop.value
            self.charge = self._charge_max - rest
            return True
        except DECODE_ERRORS as error:
            raise _malformed(self._codec, error) from error
        return False


def _malformed(codec: CompiledCodec, error: Exception) -> Malformed:
    field, position = codec.locate(error.__traceback__)
    return Malformed(f"{codec.name}: {field} at byte {position}: {error}")


def encode_response(api_key: int, version: int, correlation_id: int, message: Message) -> list[Buffer]:
    """Encode response header and body as chunks (see `encode_chunks`), without the size. Raise Unencodable."""
    chunks = encode_chunks(message, version)
    chunks[0] = _response_header(api_key, version, correlation_id) + chunks[0]
    return chunks


def _response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    header = CORRELATION_ID.pack(correlation_id)
    if response_header_version(api_key, version) == 1:
        header += b"\x00"  # no tagged fields
    return header


class _Slices:
    """Run of a sliced encoder."""

    __slots__ = ("_codec", "_run", "chunks")

    def __init__(self, codec: CompiledCodec, source: object, chunks: list[Buffer]) -> None:
        self._codec = codec
        self._run: Iterator[tuple[list[Buffer], list[int]]] = codec.run(source)
        self.chunks = chunks
        """The encoded bytes of the slices so far."""

    def run_slice(self) -> bool:
        """Encode the next slice. Return True if the encoding is complete. Raise Unencodable as `encode`."""
        try:
            self.chunks += _chunks(*next(self._run))
        except StopIteration as stop:
            self.chunks += _chunks(*stop.value)
            return True
        except ENCODE_ERRORS as error:
            field, _ = self._codec.locate(error.__traceback__)
            raise Unencodable(f"{self._codec.name}: {field}: {_reason(error)}") from error
        return False


class SlicedEncoding(_Slices):
    """Encoding of one large response in slices. The caller lets other work run between two slices.

    The chunks are header and body (see `encode_response`). Arrays of structs may contain the result of a
    `SlicedPacking`.
    """

    __slots__ = ()

    def __init__(self, api_key: int, version: int, correlation_id: int, message: Message) -> None:
        cls = type(message)
        codec = _sliced_encoders.get((cls, version))
        if codec is None:
            codec = _sliced_encoders[cls, version] = compile_encoder(cls, version, sliced=True)
        super().__init__(codec, message, [_response_header(api_key, version, correlation_id)])


class SlicedPacking(_Slices):
    """Encoding, in slices, of some elements of an array in messages of the class `cls`. There is at least one element.

    The encoded elements need less memory than the objects, which the caller can drop.
    """

    __slots__ = ("_count",)

    def __init__(self, cls: type[Message], version: int, elements: Sequence[Struct]) -> None:
        element = type(elements[0])
        codec = _elements_encoders.get((cls, version, element))
        if codec is None:
            codec = compile_elements_encoder(cls, version, element)
            _elements_encoders[cls, version, element] = codec
        super().__init__(codec, elements, [])
        self._count = len(elements)

    def packed(self) -> Packed:
        """Return the encoded elements, after the last slice."""
        return Packed(self._count, b"".join(self.chunks))


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
        raise Unencodable(f"{codec.name}: {field}: {_reason(error)}") from error
    return result


def _reason(error: Exception) -> str:
    """Return the text of an error of the encoder. For a number out of range, it has the range of the field."""
    text = STRUCT_RANGE.sub(r"expected a number from \1 to \2", str(error))
    return text.replace(STRUCT_RANGE_64, f"expected a number from {-(2**63)} to {2**63 - 1}")


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
