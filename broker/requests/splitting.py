"""Split a large request into smaller requests of the same API, and join their responses.

A handler whose elements do not depend on each other then needs no code of its own for large requests.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from odradek.protocol.schema import Packed, Struct, field_rows

ELEMENTS_PER_PART: Final = 1_000
"""Maximum elements that a handler processes between two turns of the event loop. One element takes 2 to 10 µs."""
ELEMENT_CHARGE_BYTES_MIN: Final = 50
"""Minimum charge of one element of a request, in bytes (`odradek.protocol.compilation.charges`)."""
DESCRIBED_PER_PART: Final = 20
"""Maximum elements per part of a request whose results have many elements each: all members of a group, or all
partitions of a transaction."""

CHARACTERS_PER_PART: Final = 32 * 1024
"""Maximum characters of the ids of a part whose handler hashes them, unless one id is longer. A hash takes 0.13 µs per
character (`odradek.protocol.hashing`)."""

Run = tuple[tuple[Any, ...], Sequence[Any] | None, int]
"""The structs around some elements, from the outermost on; these elements, or None for a null array; and the work on
them, in elements."""


@dataclass(frozen=True, slots=True)
class Splitting:
    """Nested arrays whose innermost elements are handled independently of each other.

    `request` names an array of the request, then an array in its elements, and so on: ("topics", "partitions").
    `response` names the arrays with the results. The results of an outer element that is divided are joined if they are
    the last results of one part and the first of the next. Otherwise the response has two results for that element.
    """

    request: tuple[str, ...]
    response: tuple[str, ...]
    size: int = ELEMENTS_PER_PART
    """Maximum elements per part."""
    hashed: Callable[[Any], str] | None = None
    """Return the id in an element of the outer array that the handler hashes. Longer ids count as more elements."""

    def is_large(self, request: Any) -> bool:
        """Return True if the request has more elements than one part."""
        count = 0
        for _, _, work in self._runs(request):
            count += work
            if count > 1 + self.size:
                return True
        return False

    def parts(self, request: Any) -> Iterator[tuple[Any, int]]:
        """Yield (part, shared). Each part has at most `size` elements, or fewer if their ids are long.

        The first `shared` outer elements of the part, one inside the other, are the last ones of the part before it.
        """
        part = _Part(request, self.request)
        for chain, elements, work in self._runs(request):
            if part.count and part.count + work > 1 + self.size:
                yield part.request, part.shared
                part = _Part(request, self.request, part.chain)
            part.add(chain, elements)
            part.count += work
        yield part.request, part.shared

    def _runs(self, struct: Any, level: int = 0) -> Iterator[Run]:
        elements = getattr(struct, self.request[level])
        if not elements:
            yield (), elements, 1
        elif level == len(self.request) - 1:
            for some, work in self._slices(elements, level):
                yield (), some, work
        else:
            for element in elements:
                additional = self._additional(element, level)
                for chain, innermost, work in self._runs(element, level + 1):
                    yield (element, *chain), innermost, work + additional
                    additional = 0  # an id that several parts have is counted once, and hashed once per part

    def _slices(self, elements: Sequence[Any], level: int) -> Iterator[tuple[Sequence[Any], int]]:
        """Yield slices of an innermost array, and the work on each."""
        if level or self.hashed is None:
            for position in range(0, len(elements), self.size):
                some = elements[position : position + self.size]
                yield some, 1 + len(some)
            return
        start, work = 0, 1
        for position, element in enumerate(elements):
            own = 1 + self._additional(element, level)
            if work > 1 and work + own > 1 + self.size:
                yield elements[start:position], work
                start, work = position, 1
            work += own
        yield elements[start:], work

    def _additional(self, element: Any, level: int) -> int:
        """Return the work on the id of `element`, in elements; 0 for a short one."""
        if level or self.hashed is None:
            return 0
        return len(self.hashed(element)) * self.size // CHARACTERS_PER_PART

    def join(self, whole: Any, part: Any, shared: int) -> None:
        """Append the results of `part` to `whole`, the response so far."""
        if hasattr(whole, "throttle_time_ms"):
            whole.throttle_time_ms = max(whole.throttle_time_ms, part.throttle_time_ms)
        if getattr(part, "error_code", 0) and not whole.error_code:
            whole.error_code = part.error_code
        for name, nested in pairwise((*self.response, "")):
            results, more = getattr(whole, name), getattr(part, name)
            if not (shared and nested and results and more and _are_of_one_element(results[-1], more[0], nested)):
                results.extend(more)
                return
            whole, part = results[-1], more[0]
            results.extend(more[1:])
            if getattr(part, "error_code", 0) and not whole.error_code:
                whole.error_code = part.error_code
            shared -= 1


def _are_of_one_element(first: Struct | Packed, second: Struct | Packed, nested: str) -> bool:
    """Return True if both results have equal fields, such as the name of the topic, except for the nested array.

    Results that are encoded already are not compared.
    """
    if isinstance(first, Packed) or isinstance(second, Packed):
        return False
    names = [row.name for row in field_rows(type(first)) if row.name not in {nested, "error_code", "error_message"}]
    return all(getattr(first, name) == getattr(second, name) for name in names)


class _Part:
    """Copies of a request and of its outer elements, with a part of the innermost elements."""

    def __init__(self, request: Any, names: tuple[str, ...], before: tuple[Any, ...] = ()) -> None:
        self.request = copy(request)
        self.chain: tuple[Any, ...] = ()
        self.shared = 0
        self.count = 0
        self._names = names
        self._before = before
        self._copies: list[Any] = []
        setattr(self.request, names[0], [])

    def add(self, chain: tuple[Any, ...], elements: Sequence[Any] | None) -> None:
        if not self.count:
            self.shared = _common(self._before, chain)
        common = _common(self.chain, chain)
        del self._copies[common:]
        self.chain = chain
        for level in range(common, len(chain)):
            element = copy(chain[level])
            if level + 1 < len(self._names):
                setattr(element, self._names[level + 1], [])
            getattr(self._last(), self._names[level]).append(element)
            self._copies.append(element)
        name = self._names[len(chain)]
        if elements is None:
            setattr(self._last(), name, None)
        else:
            getattr(self._last(), name).extend(elements)

    def _last(self) -> Any:
        return self._copies[-1] if self._copies else self.request


def _common(first: tuple[Any, ...], second: tuple[Any, ...]) -> int:
    """Return how many objects both chains begin with."""
    count = 0
    while count < min(len(first), len(second)) and first[count] is second[count]:
        count += 1
    return count
