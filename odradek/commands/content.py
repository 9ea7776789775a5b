"""Keys, values and headers of records as JSON: text if they are UTF-8, otherwise `{"base64": ...}`."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from odradek import client

if TYPE_CHECKING:
    from collections.abc import Iterable

BASE64 = "base64"
ESCAPES = "surrogateescape"
"""Error handler with which Python preserves bytes that are not UTF-8, in arguments and standard input."""

Headers = tuple[tuple[str, bytes | None], ...]


def bytes_of(text: str, origin: str) -> bytes:
    """Return the bytes of an argument or an input line, which need not be UTF-8.

    Raise ClientError if the text cannot be encoded. `origin` names the argument or line in the error message.
    """
    try:
        return text.encode(errors=ESCAPES)
    except UnicodeEncodeError as error:
        raise client.ClientError(f"{origin}: {error}") from error


def json_of(content: bytes | None) -> str | dict[str, str] | None:
    """Return a key or value of a record as a JSON value."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(content).decode("ascii")}


def from_json(value: Any, origin: str) -> bytes | None:
    """Return the bytes for a result of `json_of`. Raise ClientError if the value is malformed."""
    if value is None:
        return None
    if isinstance(value, str):
        return bytes_of(value, origin)
    if isinstance(value, dict) and isinstance(value.get(BASE64), str):
        try:
            return base64.b64decode(value[BASE64], validate=True)
        except binascii.Error as error:
            raise client.ClientError(f"{origin}: not base64") from error
    raise client.ClientError(f'{origin}: expected text, null or {{"base64": ...}}')


def json_of_headers(headers: Iterable[tuple[str, bytes | None]]) -> list[list[Any]]:
    """Return headers as pairs of name and value, because a name may occur more than once."""
    return [[name, json_of(value)] for name, value in headers]


def headers_from_json(pairs: Any, origin: str) -> Headers:
    """Return the headers for a result of `json_of_headers`. Raise ClientError if they are malformed."""
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise client.ClientError(f"{origin}: expected headers as [[name, value], ...]")
    return tuple((str(name), from_json(value, origin)) for name, value in pairs)
