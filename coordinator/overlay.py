"""A dictionary that collects changes to another dictionary and makes them there on `commit`.

A decision about a group works on overlays of the dictionaries of the group. The decision reads its own changes, and the
group does not change. The cost depends on the number of changes, not on the number of members.
"""

from collections.abc import Iterator, MutableMapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Overlay(MutableMapping[K, V], Generic[K, V]):
    """Dictionary with the entries of `base` and the changes made to the overlay. Keys have the order of a `dict`.

    As with a `dict`, keys must not be added or removed during an iteration.
    """

    __slots__ = ("_added", "_base", "_changed", "_removed")

    def __init__(self, base: MutableMapping[K, V]) -> None:
        self._base = base
        self._changed: dict[K, V] = {}
        """New values of keys that keep their position in `base`."""
        self._removed: dict[K, None] = {}
        """Removed keys of `base`. A key that was set again after its removal is also in `_added`."""
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
        """Remove all keys. The inherited method removes keys one by one, with a search for each."""
        self._removed = dict.fromkeys(self._base)
        self._changed.clear()
        self._added.clear()

    def commit(self) -> None:
        """Make the changes in `base`. Do not use the overlay afterwards."""
        for key in self._removed:
            del self._base[key]
        if self._changed:
            self._base.update(self._changed)
        if self._added:
            self._base.update(self._added)
