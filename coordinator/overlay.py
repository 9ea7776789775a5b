"""A dictionary whose changes are kept apart from the one below it until they are committed.

A decision works on overlays of the dictionaries of a group, so that it can see its own changes while the group does not change.
Its cost depends on what the decision changes, not on the number of members.
"""

from collections.abc import Iterator, MutableMapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Overlay(MutableMapping[K, V], Generic[K, V]):
    """Reads like `base` with the changes made to it. Keys keep the order that a dictionary would give them.

    Like a dictionary, it must not gain or lose keys while it is iterated.
    """

    __slots__ = ("_added", "_base", "_changed", "_removed")

    def __init__(self, base: MutableMapping[K, V]) -> None:
        self._base = base
        self._changed: dict[K, V] = {}
        """New values of keys that keep their place in `base`."""
        self._removed: dict[K, None] = {}
        """Keys of `base` that were removed; one that was set again since is also in `_added`, at its new place."""
        self._added: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        if key in self._added:
            return self._added[key]
        if key in self._changed:
            return self._changed[key]
        if key in self._removed:
            raise KeyError(key)
        return self._base[key]

    def __setitem__(self, key: K, value: V) -> None:
        if key in self._base and key not in self._removed:
            self._changed[key] = value
        else:
            self._added[key] = value

    def __delitem__(self, key: K) -> None:
        if key in self._added:
            del self._added[key]
        elif key in self._removed or key not in self._base:
            raise KeyError(key)
        else:
            self._changed.pop(key, None)
            self._removed[key] = None

    def __iter__(self) -> Iterator[K]:
        for key in self._base:
            if key not in self._removed:
                yield key
        yield from self._added

    def __len__(self) -> int:
        return len(self._base) - len(self._removed) + len(self._added)

    def clear(self) -> None:
        """Remove all keys. (The inherited method removes one after the other and searches for each.)"""
        self._removed = dict.fromkeys(self._base)
        self._changed.clear()
        self._added.clear()

    def commit(self) -> None:
        """Make the changes in the base. The overlay must not be used afterwards."""
        for key in self._removed:
            del self._base[key]
        if self._changed:
            self._base.update(self._changed)
        if self._added:
            self._base.update(self._added)
