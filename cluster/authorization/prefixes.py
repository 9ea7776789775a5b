"""Set of prefixes that finds the longest prefix of a name by one binary search."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import takewhile


class Prefixes:
    """Prefixes in the order of their text. Each one refers to the longest other prefix that it begins with.

    All prefixes of a name are prefixes of the last element that is not above the name: an element between a prefix and
    a name that begins with it also begins with it.
    """

    __slots__ = ("_ordered", "_shorter")

    def __init__(self) -> None:
        self._ordered: list[str] = []
        self._shorter: dict[str, str | None] = {}

    def add(self, prefix: str) -> None:
        """Add a prefix that the set does not have."""
        shorter = self.longest(prefix)
        at = bisect_left(self._ordered, prefix)
        for each in self._beginning_with(prefix, at):
            if self._shorter[each] == shorter:
                self._shorter[each] = prefix
        self._ordered.insert(at, prefix)
        self._shorter[prefix] = shorter

    def remove(self, prefix: str) -> None:
        """Remove a prefix that the set has."""
        at = bisect_left(self._ordered, prefix)
        del self._ordered[at]
        shorter = self._shorter.pop(prefix)
        for each in self._beginning_with(prefix, at):
            if self._shorter[each] == prefix:
                self._shorter[each] = shorter

    def longest(self, name: str) -> str | None:
        """Return the longest prefix of `name`, or None if the set has none."""
        at = bisect_right(self._ordered, name)
        found = self._ordered[at - 1] if at else None
        while found is not None and not name.startswith(found):
            found = self._shorter[found]
        return found

    def _beginning_with(self, prefix: str, at: int) -> Iterator[str]:
        """Return the elements from the index `at` on that begin with `prefix`. They are consecutive."""
        ordered = self._ordered
        following = (ordered[index] for index in range(at, len(ordered)))
        return takewhile(lambda each: each.startswith(prefix), following)
