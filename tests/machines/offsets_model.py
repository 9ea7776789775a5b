"""The rules of committed offsets once more, as plain dictionaries in the words of the facts.

Written apart from coordinator/group/offsets: no packed bytes, no index, no record, no slice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

WEEK_MS = 604_800_000

Place = tuple[str, str, int]
"""(group, topic, partition)"""


class Offset(NamedTuple):
    value: int
    commit_ms: int
    expire_ms: int
    topic_id: int
    position: int
    """Where its record stands in the log."""


@dataclass
class Members:
    """A group that the log knows: what its members subscribe to, or since when it has none."""

    topics: tuple[str, ...] | None
    since_ms: int


@dataclass
class Model:
    committed: dict[Place, Offset] = field(default_factory=dict)
    pending: dict[int, dict[Place, Offset]] = field(default_factory=dict)
    groups: dict[str, Members | None] = field(default_factory=dict)
    """None: there is one only because somebody has committed for it."""

    # ---- questions --------------------------------------------------------------------------------------------------

    def promised(self, place: Place) -> bool:
        return any(place in offsets for offsets in self.pending.values())

    def promised_to(self, group: str) -> bool:
        return any(place[0] == group for offsets in self.pending.values() for place in offsets)

    def keeps(self, group: str, topic: str) -> bool:
        members = self.groups.get(group)
        return members is not None and members.topics is not None and topic in members.topics

    def has_members(self, group: str) -> bool:
        members = self.groups.get(group)
        return members is not None and members.topics is not None

    def fetch(self, place: Place, topic_id: int, *, stable: bool) -> object:
        if stable and self.promised(place):
            return "UNSTABLE_OFFSET_COMMIT"
        found = self.committed.get(place)
        if place[0] not in self.groups or found is None:
            return -1
        strangers = found.topic_id and topic_id and found.topic_id != topic_id
        return -1 if strangers else found.value

    def fetch_all(self, group: str, *, stable: bool) -> dict[tuple[str, int], object]:
        return {
            (place[1], place[2]): self.fetch(place, 0, stable=stable)
            for place in self.committed
            if place[0] == group and group in self.groups
        }

    def expired(self, place: Place, now_ms: int) -> bool:
        offset = self.committed[place]
        if self.keeps(place[0], place[1]) or self.promised(place):
            return False
        if offset.expire_ms != -1:
            return now_ms >= offset.expire_ms
        members = self.groups.get(place[0])
        counts_from = offset.commit_ms
        if members is not None and members.topics is None:
            counts_from = members.since_ms
        return now_ms - counts_from >= WEEK_MS

    # ---- what happens -----------------------------------------------------------------------------------------------

    def commit(self, place: Place, offset: Offset) -> None:
        self.committed[place] = offset
        self.groups.setdefault(place[0], None)

    def promise(self, producer: int, place: Place, offset: Offset) -> None:
        self.pending.setdefault(producer, {})[place] = offset
        self.groups.setdefault(place[0], None)

    def end(self, producer: int, *, commit: bool) -> None:
        for place, offset in self.pending.pop(producer, {}).items():
            before = self.committed.get(place)
            if commit and (before is None or before.position < offset.position):
                self.commit(place, offset)

    def delete(self, place: Place) -> str:
        if self.keeps(place[0], place[1]):
            return "GROUP_SUBSCRIBED_TO_TOPIC"
        if self.promised(place):
            return "UNSTABLE_OFFSET_COMMIT"
        self.committed.pop(place, None)
        return "NONE"

    def delete_group(self, group: str) -> str | None:
        if group not in self.groups:
            return "GROUP_ID_NOT_FOUND"
        if self.has_members(group) or self.promised_to(group):
            return "NON_EMPTY_GROUP"
        self.forget(group)
        return None

    def forget(self, group: str) -> None:
        self.committed = {place: offset for place, offset in self.committed.items() if place[0] != group}
        del self.groups[group]

    def erase(self, place: Place) -> None:
        """A tombstone that some other broker has written."""
        self.committed.pop(place, None)
        for offsets in self.pending.values():
            offsets.pop(place, None)

    def topic_deleted(self, topic: str, topic_id: int) -> None:
        everything = {*self.committed, *(place for offsets in self.pending.values() for place in offsets)}
        for place in everything:
            if place[1] != topic:
                continue
            found = self.committed.get(place)
            if self.promised(place) or (found is not None and found.topic_id in {0, topic_id}):
                self.erase(place)  # what is promised has no topic id: it is of any topic of the name

    def sweep(self, now_ms: int) -> None:
        self.committed = {place: offset for place, offset in self.committed.items() if not self.expired(place, now_ms)}
        for group in list(self.groups):
            idle = not self.has_members(group) and not self.promised_to(group)
            if idle and all(place[0] != group for place in self.committed):
                del self.groups[group]
