"""The draft of one decision about a classic group."""

from dataclasses import dataclass
from functools import partial

from odradek.coordinator.group.classic.commands import session_key, session_timer
from odradek.coordinator.group.classic.member import Member
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.draft import Draft
from odradek.coordinator.group.ports import GroupConfig
from odradek.coordinator.group.state import State
from odradek.runtime.shard import Timer


@dataclass(slots=True)
class ClassicDraft(Draft[ClassicGroup]):
    """Draft of a decision. `group` is a draft of the group in `state`, or a new group; the decision may change it."""

    @classmethod
    def of(cls, state: State, group: ClassicGroup, now_ms: int) -> "ClassicDraft":
        """Start a decision about a group of `state`. The group takes over `draft.group` with the decision."""
        draft = cls(state, group.draft(), now_ms)
        draft.soft.append(partial(group.commit, draft.group))
        return draft

    @property
    def config(self) -> GroupConfig:
        return self.state.configs.broker()

    def restart_session(self, member: Member) -> None:
        """Restart the session of the member with its full session time-out."""
        self.timers.append(session_timer(self.group.group_id, member.member_id, member.session_timeout_ms))

    def stop_session(self, member_id: str) -> None:
        self.timers.append(Timer(session_key(self.group.group_id, member_id)))
