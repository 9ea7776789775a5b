"""Counts of error codes in responses, for any message class: each field whose name ends in `error_code` counts."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, get_args, get_type_hints

from odradek.protocol.schema import Message, Packed, Struct

Counts = dict[int, int]
"""Number of occurrences by error code. NONE (0) is not counted."""
CODE_SUFFIX = "error_code"
"""End of the names of fields that hold an error code, as in Kafka's message schemas."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Error codes of a message or structure: its own fields, and lists of structures with such fields."""

    codes: tuple[str, ...]
    lists: "tuple[tuple[str, Fields], ...]"
    only: Callable[[Any], int] | None
    """Return the error code of a structure that has exactly one; None for other structures."""

    def count(self, message: Any, counts: Counts) -> None:
        """Add the error codes of `message` to `counts`."""
        for name in self.codes:
            code = getattr(message, name)
            if code:
                counts[code] = counts.get(code, 0) + 1
        for name, inner in self.lists:
            rows = getattr(message, name)
            if rows and rows[0].__class__ is Packed:  # counted when they were encoded
                rows = [row for row in rows if row.__class__ is not Packed]
            if not rows or (inner.only is not None and not any(map(inner.only, rows))):
                continue  # the common case: a Fetch response has many partitions, and most have no error
            for row in rows:
                inner.count(row, counts)


def fields_of(cls: type[Any]) -> Fields:
    """Return the positions of the error codes in objects of the message class `cls`."""
    hints = get_type_hints(cls)
    codes, lists = [], []
    for name, hint in hints.items():
        if name.endswith(CODE_SUFFIX) and hint is int:
            codes.append(name)
        for part in _parts(hint):
            if isinstance(part, type) and issubclass(part, Struct | Message):
                inner = fields_of(part)
                if inner.codes or inner.lists:
                    lists.append((name, inner))
    only = attrgetter(codes[0]) if len(codes) == 1 and not lists else None
    return Fields(tuple(codes), tuple(lists), only)


def _parts(hint: Any) -> list[Any]:
    """Return T if `hint` is list[T] or list[T] | None, and nothing otherwise."""
    return [
        part
        for option in (hint, *get_args(hint))
        if getattr(option, "__origin__", None) is list
        for part in get_args(option)
    ]


_COUNTERS: dict[type[Any], Callable[[Any, Counts], None]] = {}


def counter_of(response: type[Any]) -> Callable[[Any, Counts], None]:
    """Return the function `count(message, counts)` for messages of the class `response`.

    The first call for a class takes about a millisecond to inspect it; the result is kept.
    """
    counter = _COUNTERS.get(response)
    if counter is None:
        counter = _COUNTERS[response] = fields_of(response).count
    return counter
