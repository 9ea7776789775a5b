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
"""Error handler by which Python keeps bytes of arguments and of standard input that are not UTF-8."""

Headers = tuple[tuple[str, bytes | None], ...]


def bytes_of(text: str, what: str) -> bytes:
    """Return the bytes of an argument or an input line, also those that are not UTF-8. Raise ClientError if there are none."""
    try:
        return text.encode(errors=ESCAPES)
    except UnicodeEncodeError as error:
        raise client.ClientError(f"{what}: {error}") from error


def json_of(content: bytes | None) -> str | dict[str, str] | None:
    """Return a key or value as a JSON value."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(content).decode("ascii")}


def from_json(value: Any, what: str) -> bytes | None:
    """Return the bytes that `json_of` has represented. Raise ClientError if the value is malformed."""
    if value is None:
        return None
    if isinstance(value, str):
        return bytes_of(value, what)
    if isinstance(value, dict) and isinstance(value.get(BASE64), str):
        try:
            return base64.b64decode(value[BASE64], validate=True)
        except binascii.Error as error:
            raise client.ClientError(f"{what}: not base64") from error
    raise client.ClientError(f'{what}: expected text, null or {{"base64": ...}}')


def json_of_headers(headers: Iterable[tuple[str, bytes | None]]) -> list[list[Any]]:
    """Return headers as pairs, since a name may occur more than once."""
    return [[name, json_of(value)] for name, value in headers]


def headers_from_json(pairs: Any, what: str) -> Headers:
    """Return the headers that `json_of_headers` has represented. Raise ClientError if they are malformed."""
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise client.ClientError(f"{what}: expected headers as [[name, value], ...]")
    return tuple((str(name), from_json(value, what)) for name, value in pairs)
