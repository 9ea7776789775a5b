"""How often which error stands in a response, for any class of message: every field that is an error code counts."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, get_args, get_type_hints

from odradek.protocol.schema import Message, Struct

Counts = dict[int, int]
"""Error code -> how often."""
CODE_SUFFIX = "error_code"


@dataclass(frozen=True, slots=True)
class Fields:
    """Where a class has error codes: in fields of its own, and in lists of structures that have some."""

    codes: tuple[str, ...]
    lists: "tuple[tuple[str, Fields], ...]"
    only: Callable[[Any], int] | None
    """Reads the one code of a structure that has no more than that."""

    def count(self, message: Any, counts: Counts) -> None:
        for name in self.codes:
            code = getattr(message, name)
            if code:
                counts[code] = counts.get(code, 0) + 1
        for name, inner in self.lists:
            rows = getattr(message, name)
            if not rows or (inner.only is not None and not any(map(inner.only, rows))):
                continue  # in most answers nothing is refused, and a fetch has many partitions
            for each in rows:
                inner.count(each, counts)


def fields_of(cls: type[Any]) -> Fields:
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
    """The T of list[T], also where it may be None."""
    return [
        part
        for option in (hint, *get_args(hint))
        if getattr(option, "__origin__", None) is list
        for part in get_args(option)
    ]


_COUNTERS: dict[type[Any], Callable[[Any, Counts], None]] = {}


def counter_of(response: type[Any]) -> Callable[[Any, Counts], None]:
    """count(message, counts) for messages of this class: made when the first one is answered, for it takes a millisecond."""
    found = _COUNTERS.get(response)
    if found is None:
        found = _COUNTERS[response] = fields_of(response).count
    return found
