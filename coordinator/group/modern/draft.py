"""One decision about a consumer group, as it grows: what will be written, and what the members' timers will do."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from odradek.coordinator.group.draft import Draft
from odradek.coordinator.group.modern.member import Member
from odradek.coordinator.group.modern.state import ConsumerGroup, Resolution
from odradek.runtime.shard import Timer


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """A timer's command: nothing was heard of the member for as long as its session lasts."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RebalanceExpired:
    """A timer's command: the member has not given up its partitions in time, if it is still at `epoch`."""

    group_id: str
    member_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class JoinExpired:
    """A timer's command: a member of the classic protocol was told to rejoin and has not."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class SyncExpired:
    """A timer's command: a member of the classic protocol has joined and has not asked for its assignment."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ResolveRegexes:
    """A timer's command: match the group's regular expressions against the topics there are."""

    group_id: str


_SESSION, _REBALANCE, _JOIN, _SYNC, _REGEX = "session", "rebalance", "join", "sync", "regex"


@dataclass(slots=True)
class ConsumerDraft(Draft[ConsumerGroup]):
    """`group` may be one that is not in `state` yet: what the records make of it stands there after `apply`."""

    # ---- soft state of the group ------------------------------------------------------------------------------------

    def set_checked(self, version: int, epoch: int) -> None:
        """The hash of the group's topics was compared for this version of the metadata and this group epoch."""

        def change() -> None:
            self.group.checked = (version, epoch)

        self.soft.append(change)

    def set_resolution(self, resolution: Resolution | None) -> None:
        """The regular expressions of the group have been matched so far."""

        def change() -> None:
            self.group.resolution = resolution

        self.soft.append(change)

    # ---- timers -----------------------------------------------------------------------------------------------------

    def start_session(self, member_id: str, timeout_ms: int) -> None:
        self._start(_SESSION, member_id, timeout_ms, SessionExpired(self.group.group_id, member_id))

    def start_rebalance(self, member: Member) -> None:
        command = RebalanceExpired(self.group.group_id, member.member_id, member.epoch)
        self._start(_REBALANCE, member.member_id, member.rebalance_timeout_ms, command)

    def stop_rebalance(self, member_id: str) -> None:
        self._stop(_REBALANCE, member_id)

    def start_join(self, member: Member) -> None:
        """A timer that runs already goes on."""
        if member.member_id not in self.group.rejoining:
            self.soft.append(partial(self.group.rejoining.__setitem__, member.member_id, None))
            command = JoinExpired(self.group.group_id, member.member_id)
            self._start(_JOIN, member.member_id, member.rebalance_timeout_ms, command)

    def stop_join(self, member_id: str) -> None:
        self.soft.append(partial(self.group.rejoining.pop, member_id, None))
        self._stop(_JOIN, member_id)

    def start_sync(self, member: Member) -> None:
        command = SyncExpired(self.group.group_id, member.member_id)
        self._start(_SYNC, member.member_id, member.rebalance_timeout_ms, command)

    def stop_sync(self, member_id: str) -> None:
        self._stop(_SYNC, member_id)

    def stop_all(self, member_id: str) -> None:
        self.stop_join(member_id)
        for timer in (_SESSION, _REBALANCE, _SYNC):
            self._stop(timer, member_id)

    def resolve_soon(self) -> None:
        """After this decision: what it writes is answered before thousands of topics are looked at."""
        group_id = self.group.group_id
        self.timers.append(Timer(("consumer", _REGEX, group_id), delay_ms=0, command=ResolveRegexes(group_id)))

    def _start(self, timer: str, member_id: str, delay_ms: int, command: Any) -> None:
        key = ("consumer", timer, self.group.group_id, member_id)
        self.timers.append(Timer(key, delay_ms=max(delay_ms, 0), command=command))

    def _stop(self, timer: str, member_id: str) -> None:
        self.timers.append(Timer(("consumer", timer, self.group.group_id, member_id)))
