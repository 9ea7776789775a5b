"""The role Unattached: no leader is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cluster.raft.roles.fetcher import Fetcher
from odradek.cluster.raft.roles.role import RoleState
from odradek.cluster.raft.roles.transitions import Event, Role, Transition
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.cluster.raft.messages import FetchReply, FetchSnapshotReply, VoteRequest
    from odradek.cluster.raft.replica import Replica


class UnattachedState(RoleState):
    """A voter waits for a leader or for its election time-out.

    An observer fetches from one random voter after another.
    """

    role = Role.UNATTACHED

    def __init__(self, replica: Replica, now_ms: int, election_deadline_ms: int) -> None:
        super().__init__(replica)
        self._election_deadline_ms = election_deadline_ms
        self._fetcher = Fetcher(replica, now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        return self._election_deadline_ms if self.replica.is_voter else self._fetcher.next_deadline_ms

    def tick(self, now_ms: int) -> Transition | None:
        if self.replica.is_voter:
            return Transition(Event.ELECTION_TIMEOUT) if now_ms >= self._election_deadline_ms else None
        self._fetcher.expire(now_ms)
        if self._fetcher.is_due(now_ms) and self.replica.voters:
            self._fetcher.fetch_from(self.replica.random_voter(), now_ms)
        return None

    def grants(self, request: VoteRequest) -> bool:
        return self._grants_once(request)

    def on_fetch_reply(self, reply: FetchReply, now_ms: int) -> Transition | None:
        return self._observe_fetch(reply, now_ms)

    def on_fetch_snapshot_reply(self, reply: FetchSnapshotReply, now_ms: int) -> Transition | None:
        return self._observe_fetch(reply, now_ms)

    def _observe_fetch(self, reply: FetchReply | FetchSnapshotReply, now_ms: int) -> Transition | None:
        """Learn the leader from the response of any voter. An observer takes no records from that response."""
        if not self._fetcher.accept(reply, now_ms):
            return None
        if reply.error is not ErrorCode.NONE or reply.epoch != self.replica.epoch:
            self._fetcher.back_off(now_ms)
        return self.observe(reply.epoch, reply.leader_id)
