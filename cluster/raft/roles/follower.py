"""The role Follower: fetches from the leader, truncates its log, installs snapshots (KIP-595, KIP-630)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cluster.raft.errors import LostCommitted
from odradek.cluster.raft.messages import EpochEnd, FetchSnapshotRequest, SnapshotPart
from odradek.cluster.raft.roles.fetcher import Fetcher
from odradek.cluster.raft.roles.role import RoleState
from odradek.cluster.raft.roles.transitions import Event, Role, Transition
from odradek.invariants.raft import RAFT_FETCH_POSITION
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.cluster.raft.messages import FetchReply, FetchSnapshotReply, VoteRequest
    from odradek.cluster.raft.replica import Replica


class FollowerState(RoleState):
    """State of a replica that follows the leader of one epoch, as a voter or as an observer."""

    role = Role.FOLLOWER

    def __init__(self, replica: Replica, now_ms: int) -> None:
        super().__init__(replica)
        self._fetch_deadline_ms = now_ms + replica.config.fetch_timeout_ms
        self._fetcher = Fetcher(replica, now_ms)
        self._has_fetched = False
        """The leader has responded to a fetch of this epoch."""
        self._leader_high_watermark = 0
        self._installing: SnapshotPart | None = None
        """The last part of a snapshot that is not complete yet."""

    @property
    def next_deadline_ms(self) -> int:
        fetch_ms = self._fetcher.next_deadline_ms
        return self._fetch_deadline_ms if fetch_ms is None else min(fetch_ms, self._fetch_deadline_ms)

    def tick(self, now_ms: int) -> Transition | None:
        if now_ms >= self._fetch_deadline_ms:
            if self.replica.is_voter:
                return Transition(Event.FETCH_TIMEOUT)
            return Transition(Event.OBSERVER_FETCH_TIMEOUT, self.replica.epoch)
        self._fetcher.expire(now_ms)
        self.fetch(now_ms)
        return None

    def on_durable(self, now_ms: int) -> None:
        self.fetch(now_ms)

    # ---- the leader fails or resigns --------------------------------------------------------------------------------

    def restarted(self, now_ms: int) -> None:
        """Wait for the leader of the stored epoch only one short election time-out: it may have failed."""
        timing = self.replica.timing
        timing.expedite()
        self._fetch_deadline_ms = min(self._fetch_deadline_ms, now_ms + timing.election_wait_ms())

    def suspect(self, leader_id: int, now_ms: int) -> None:
        """Start an election soon if the suspected node `leader_id` is the leader."""
        timing = self.replica.timing
        if leader_id == self.replica.leader_id and not timing.expedited:
            timing.expedite()
            delay_ms = timing.suspicion_delay_ms() if self.replica.is_voter else 0
            self._fetch_deadline_ms = min(self._fetch_deadline_ms, now_ms + delay_ms)

    def leader_resigned(self, leader_id: int, preferred_successors: tuple[int, ...], now_ms: int) -> None:
        """Start an election when it is this voter's turn: the leader has sent EndQuorumEpoch."""
        replica = self.replica
        if leader_id == replica.leader_id and replica.is_voter:
            replica.timing.expedite()
            wait_ms = replica.timing.succession_wait_ms(replica.node_id, preferred_successors)
            self._fetch_deadline_ms = now_ms + wait_ms

    def grants(self, request: VoteRequest) -> bool:
        """Refuse also a pre-vote while the leader is known to be alive (KIP-996).

        A node that was partitioned from the leader can then not depose a leader that the other voters reach.
        """
        leader_is_alive = self._has_fetched and not self.replica.timing.expedited
        return request.pre_vote and not leader_is_alive and self._is_up_to_date(request)

    # ---- fetches ----------------------------------------------------------------------------------------------------

    def fetch(self, now_ms: int) -> None:
        """Send the next fetch if it is due and everything that it acknowledges is durable."""
        if not self._fetcher.is_due_and_durable(now_ms):
            return
        self.replica.confirm(self._leader_high_watermark)
        if self._installing is None:
            self._fetcher.fetch_from(self.replica.leader_id, now_ms)
        else:
            self._fetcher.fetch_snapshot(self._installing, now_ms)

    def on_fetch_reply(self, reply: FetchReply, now_ms: int) -> Transition | None:
        if not self._fetcher.accept(reply, now_ms):
            return None
        if self._is_refused(reply):
            self._fetcher.back_off(now_ms)
            return self.observe(reply.epoch, reply.leader_id)
        self._leader_responded(now_ms)
        if reply.diverging is not None:
            self._truncate(reply.diverging)
        elif reply.snapshot is not None:
            self._check_committed(reply.snapshot, reply.snapshot.end_offset)
            self._installing = SnapshotPart(reply.snapshot, 0, b"", last=False)
        else:
            self._append(reply)
        self.fetch(now_ms)
        return None

    def _is_refused(self, reply: FetchReply | FetchSnapshotReply) -> bool:
        return reply.error is not ErrorCode.NONE or reply.epoch != self.replica.epoch

    def _leader_responded(self, now_ms: int) -> None:
        self._has_fetched = True
        self.replica.timing.leader_is_alive()
        self._fetch_deadline_ms = now_ms + self.replica.config.fetch_timeout_ms

    def _truncate(self, diverging: EpochEnd) -> None:
        point = self.replica.log.truncation_point(diverging)
        self._check_committed(diverging, point)
        self.replica.log.truncate_to(point)
        if point == 0:
            self.replica.leader_truncated_all()

    def _append(self, reply: FetchReply) -> None:
        log = self.replica.log
        if reply.fetch_offset != log.end_offset:
            raise RAFT_FETCH_POSITION.violated(fetch_offset=reply.fetch_offset, end_offset=log.end_offset)
        for entry in reply.entries:
            log.append(entry)
        self._leader_high_watermark = reply.high_watermark
        self.replica.commit(min(reply.high_watermark, log.end_offset))

    def on_fetch_snapshot_reply(self, reply: FetchSnapshotReply, now_ms: int) -> Transition | None:
        if reply.error in {ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE}:
            self._installing = None  # the leader now has a later snapshot, and names it in its next fetch response
        requested = self._fetcher.pending
        if not self._fetcher.accept(reply, now_ms):
            return None
        if self._is_refused(reply):
            self._fetcher.back_off(now_ms)
            return self.observe(reply.epoch, reply.leader_id)
        assert isinstance(requested, FetchSnapshotRequest)
        self._leader_responded(now_ms)
        end = reply.position + len(reply.data)
        is_requested = (reply.snapshot, reply.position) == (requested.snapshot, requested.position)
        if not is_requested or not reply.data or end > reply.size:
            self._fetcher.back_off(now_ms)
            return None
        self._install(SnapshotPart(reply.snapshot, reply.position, reply.data, last=end == reply.size))
        return None

    def _install(self, part: SnapshotPart) -> None:
        """Hand `part` to the driver. The next part is fetched when this one is written (`on_durable`)."""
        replica = self.replica
        replica.outbox.write(part)
        self._installing = None if part.last else part
        if part.last:
            replica.log.restart_at(part.snapshot)
            replica.commit(part.snapshot.end_offset)

    def _check_committed(self, leaders: EpochEnd, truncate_to: int) -> None:
        """Raise LostCommitted if `truncate_to` is below the high watermark.

        Every leader's log has all committed entries.
        """
        replica = self.replica
        if truncate_to < replica.high_watermark:
            raise LostCommitted(
                f"a majority of the voters has lost data: on leader {replica.leader_id} of epoch {replica.epoch}, epoch"
                f" {leaders.epoch} ends at offset {leaders.end_offset}."
                f" Offsets below {replica.high_watermark} are committed on this node, which keeps its log"
            )
