"""Dictionaries with keys that clients choose, bounded by count and by memory.

A transactional id or group id can be 32 KiB long, so the number of ids does not bound their memory.
"""

from typing import Final, TypeVar

V = TypeVar("V")

IDS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum bytes of all group ids, or of all transactional ids, in one partition. Kafka has no limit.

An id has at most 32 KiB. An id with a character that is not ASCII counts four times.
"""
CHARACTER_BYTES_MAX: Final = 4
"""Maximum bytes per character of a string in memory.

If one character is above U+FFFF, CPython stores each character in four bytes.
"""


def text_bytes_max(text: str) -> int:
    """Return the maximum number of bytes that the characters of `text` take in memory."""
    return len(text) if text.isascii() else CHARACTER_BYTES_MAX * len(text)


class BoundedIdDict(dict[str, V]):
    """Dictionary by id that keeps the number of bytes that further ids can take (`bytes_left`).

    Entries are added and removed only by `x[id] = ...` and `del x[id]`; other methods of `dict` do not update
    `bytes_left`.
    """

    __slots__ = ("bytes_left",)

    def __init__(self) -> None:
        super().__init__()
        self.bytes_left = IDS_BYTES_MAX

    def __setitem__(self, key: str, value: V) -> None:
        if key not in self:
            self.bytes_left -= text_bytes_max(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.bytes_left += text_bytes_max(key)

    @property
    def keys_bytes(self) -> int:
        """Maximum bytes that the characters of all ids take in memory."""
        return IDS_BYTES_MAX - self.bytes_left

    def has_capacity_for(self, key: str, count_max: int) -> bool:
        """Return True if the new id `key` fits: fewer than `count_max` entries, and enough bytes left."""
        return len(self) < count_max and text_bytes_max(key) <= self.bytes_left
