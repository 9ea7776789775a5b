"""The draft of one decision about a consumer group, and the commands of the group's timers."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from odradek.coordinator.group.commands import DescribableTopics
from odradek.coordinator.group.draft import Draft
from odradek.coordinator.group.modern.member import Member
from odradek.coordinator.group.modern.state import ConsumerGroup, Resolution
from odradek.frozen import frozen_dataclass
from odradek.runtime.shard import Timer


@frozen_dataclass(frozen=True, slots=True)
class SessionExpired:
    """Timer command: the member has sent no heartbeat within its session time-out."""

    group_id: str
    member_id: str


@frozen_dataclass(frozen=True, slots=True)
class RebalanceExpired:
    """Timer command: the rebalance time-out of a member that must revoke partitions, if it is still at `epoch`."""

    group_id: str
    member_id: str
    epoch: int


@frozen_dataclass(frozen=True, slots=True)
class JoinExpired:
    """Timer command: a member of the classic protocol had to rejoin and has not sent JoinGroup in time."""

    group_id: str
    member_id: str


@frozen_dataclass(frozen=True, slots=True)
class SyncExpired:
    """Timer command: a member of the classic protocol has joined and has not sent SyncGroup in time."""

    group_id: str
    member_id: str


@frozen_dataclass(frozen=True, slots=True)
class ResolveRegexes:
    """Timer command: evaluate the group's regular expressions on the topic names.

    `describable` are permissions that the group does not have yet: it may not have existed before the heartbeat.
    """

    group_id: str
    describable: tuple[tuple[str, DescribableTopics], ...] = ()


_SESSION, _REBALANCE, _JOIN, _SYNC, _REGEX = "session", "rebalance", "join", "sync", "regex"


@dataclass(slots=True)
class ConsumerDraft(Draft[ConsumerGroup]):
    """Draft of a decision. `group` can be a new group, which gets into `state` when its records are applied."""

    # ---- soft state of the group ------------------------------------------------------------------------------------

    def set_hash_checked(self, version: int, epoch: int) -> None:
        """Store that the metadata hash was compared for this metadata version and group epoch."""

        def change() -> None:
            self.group.checked = (version, epoch)

        self.soft.append(change)

    def set_resolution(self, resolution: Resolution | None) -> None:
        """Store the progress of the evaluation of regular expressions."""

        def change() -> None:
            self.group.resolution = resolution

        self.soft.append(change)

    def set_describable(self, regex: str, describable: DescribableTopics) -> None:
        """Store which topics a member with the regular expression may describe. Drop this for unused expressions."""

        def change() -> None:
            used = self.group.subscriptions.regexes
            kept = {each: former for each, former in self.group.describable.items() if each in used}
            self.group.describable = kept | {regex: describable}

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
        """Start the timer for the member's rejoin, unless it runs already."""
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

    def start_regex_evaluation(self, *describable: tuple[str, DescribableTopics]) -> None:
        """Evaluate the regular expressions in a later decision, so that this response does not wait for it."""
        group_id = self.group.group_id
        self.timers.append(
            Timer(("consumer", _REGEX, group_id), delay_ms=0, command=ResolveRegexes(group_id, describable))
        )

    def _start(self, timer: str, member_id: str, delay_ms: int, command: Any) -> None:
        key = ("consumer", timer, self.group.group_id, member_id)
        self.timers.append(Timer(key, delay_ms=max(delay_ms, 0), command=command))

    def _stop(self, timer: str, member_id: str) -> None:
        self.timers.append(Timer(("consumer", timer, self.group.group_id, member_id)))
