"""Dictionaries by ids that clients choose: an id may be 32 KiB long, so how many there are does not say what they take."""

from typing import Final, TypeVar

V = TypeVar("V")

IDS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of the ids of all groups, or of all transactional ids, of one partition; Kafka has no limit."""
CHARACTER_BYTES_MAX: Final = 4


def text_bytes_max(text: str) -> int:
    """What the letters take in memory at most: one that is not ASCII makes all of them wider."""
    return len(text) if text.isascii() else CHARACTER_BYTES_MAX * len(text)


class ById(dict[str, V]):
    """Entries come and go by `x[id] = ...` and `del x[id]` alone; `bytes_left` is what ids may still take."""

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

    def has_capacity_for(self, key: str, count_max: int) -> bool:
        """May this new id be taken in?"""
        return len(self) < count_max and text_bytes_max(key) <= self.bytes_left
