"""Changes of groups that the console has observed: states, epochs, members and assignments. This module is pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from odradek.client.admin.group_members import GroupMembers

EVENTS_PER_GROUP: Final = 100
"""Maximum changes per group that are kept. One takes about 300 bytes, and at most about 1.5 KiB."""
CHANGES_MAX: Final = 20_000
"""Maximum changes of all groups that are kept, of one session: about 6 MiB. The oldest ones of the group that changed
least recently are evicted."""
GROUPS_MAX: Final = 5_000
"""Maximum groups with history. Those observed least recently are evicted."""
NAMES_MAX: Final = 3
"""Maximum members that one change names. The others are counted."""
NAME_CHARACTERS_MAX: Final = 100
"""Maximum characters of the name of a member. A client selects its client id, of up to 32 KiB."""


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A change of a group, observed between two samples.

    Attributes:
        at_ms: Time of the later sample in ms since 1970.
        kind: `state`, `epoch`, `members` or `assignment`.
        text: What changed.
    """

    at_ms: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Sample:
    """State, epoch and members of a group. `owned` has the member of each partition."""

    state: str
    epoch: int | None
    members: Mapping[str, str]
    owned: Mapping[tuple[str, int], str]


def sample_of(group: GroupMembers) -> Sample:
    """Return the sample of a described group."""
    return Sample(
        group.state,
        group.epoch,
        {member.member_id: _shortened(member.client_id or member.member_id) for member in group.members},
        {
            (topic, partition): member.member_id
            for member in group.members
            for topic, partitions in member.assignment.items()
            for partition in partitions
        },
    )


class GroupHistory:
    """Changes of groups since the first sample of each."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, Sample] = OrderedDict()
        self._changes: OrderedDict[str, deque[GroupChange]] = OrderedDict()
        self._count = 0

    def observe(self, group: str, sample: Sample, now_ms: int) -> None:
        """Add the changes between the last sample of a group and this one."""
        before = self._last.get(group)
        self._last[group] = sample
        self._last.move_to_end(group)
        if before is not None and (found := [GroupChange(now_ms, *each) for each in changes(before, sample)]):
            kept = self._changes.setdefault(group, deque(maxlen=EVENTS_PER_GROUP))
            self._changes.move_to_end(group)
            self._count -= len(kept)
            kept.extend(found)
            self._count += len(kept)
        while len(self._last) > GROUPS_MAX:
            evicted, _ = self._last.popitem(last=False)
            self._count -= len(self._changes.pop(evicted, ()))
        while self._count > CHANGES_MAX:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        group, kept = next(iter(self._changes.items()))
        kept.popleft()
        self._count -= 1
        if not kept:
            del self._changes[group]

    def is_observed(self, group: str) -> bool:
        """Return True if there is a sample of the group."""
        return group in self._last

    def changes(self, group: str) -> list[GroupChange]:
        """Return the changes of a group, newest first."""
        return list(reversed(self._changes.get(group, ())))


def changes(before: Sample, now: Sample) -> Iterable[tuple[str, str]]:
    """Return kind and text of each change between two samples."""
    if before.state != now.state:
        yield "state", f"{before.state} → {now.state}"
    if before.epoch != now.epoch:
        yield "epoch", f"epoch {_number(before.epoch)} → {_number(now.epoch)}"
    joined = [name for member, name in now.members.items() if member not in before.members]
    left = [name for member, name in before.members.items() if member not in now.members]
    if joined:
        yield "members", f"{_counted(joined)} joined"
    if left:
        yield "members", f"{_counted(left)} left"
    moved = [key for key, owner in now.owned.items() if before.owned.get(key) != owner]
    revoked = [key for key in before.owned if key not in now.owned]
    if moved or revoked:
        parts = [f"{len(moved)} assigned anew"] if moved else []
        parts += [f"{len(revoked)} without owner"] if revoked else []
        yield "assignment", f"{', '.join(parts)}, {len(now.owned)} assigned in total"


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_CHARACTERS_MAX else f"{name[:NAME_CHARACTERS_MAX]}…"


def _number(epoch: int | None) -> str:
    return "unknown" if epoch is None else str(epoch)


def _counted(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:NAMES_MAX])
    rest = len(names) - NAMES_MAX
    return f"{shown} and {rest} more" if rest > 0 else shown
