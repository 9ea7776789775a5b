"""Keys, values and headers as JSON: text where they are UTF-8, otherwise {"base64": ...}; both ways."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from odradek.client.client import Failed

if TYPE_CHECKING:
    from collections.abc import Iterable

BASE64 = "base64"
ESCAPES = "surrogateescape"
"""How Python keeps bytes of arguments and of input that are no text."""


def bytes_of(text: str, what: str) -> bytes:
    """What a shell or a file has given, bytes that are no text included. Raises Failed."""
    try:
        return text.encode(errors=ESCAPES)
    except UnicodeEncodeError as error:
        raise Failed(f"{what}: {error}") from error


def shown(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(content).decode("ascii")}


def taken(value: Any, what: str) -> bytes | None:
    """The bytes that `shown` has shown. Raises Failed."""
    if value is None:
        return None
    if isinstance(value, str):
        return bytes_of(value, what)
    if isinstance(value, dict) and isinstance(value.get(BASE64), str):
        try:
            return base64.b64decode(value[BASE64], validate=True)
        except binascii.Error as error:
            raise Failed(f"{what}: not base64") from error
    raise Failed(f'{what}: expected text, null or {{"base64": ...}}')


def shown_headers(headers: Iterable[tuple[str, bytes | None]]) -> list[list[Any]]:
    """Pairs: a name may come more than once."""
    return [[name, shown(value)] for name, value in headers]


def taken_headers(pairs: Any, what: str) -> tuple[tuple[str, bytes | None], ...]:
    """The headers that `shown_headers` has shown. Raises Failed."""
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise Failed(f"{what}: expected headers as [[name, value], ...]")
    return tuple((str(name), taken(value, what)) for name, value in pairs)
