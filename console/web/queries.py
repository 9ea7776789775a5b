"""Values in the addresses of pages. An invalid value stands for the default: an address is not worth an error."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping

E = TypeVar("E", bound=Enum)

DIGITS_MAX: Final = 18
"""Maximum digits of a number. Offsets and times have at most 19."""


def number_of(text: str | None, default: int) -> int:
    """Return a number that is not negative."""
    given = (text or "").strip()
    return int(given) if given.isascii() and given.isdecimal() and len(given) <= DIGITS_MAX else default


def optional_number_of(text: str | None) -> int | None:
    """Return a number that is not negative, or None."""
    found = number_of(text, -1)
    return None if found < 0 else found


def choice_of(kind: type[E], text: str | None, default: E) -> E:
    """Return the member of an enumeration with this value."""
    try:
        return kind(text)
    except ValueError:
        return default


def address(path: str, values: Mapping[str, object]) -> str:
    """Return an address with the values that are not None, empty or False. The number 0 is one of them."""
    given = {name: value for name, value in values.items() if value is not None and value is not False and value != ""}
    query = urlencode(given)
    return f"{path}?{query}" if query else path
