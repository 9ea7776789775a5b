"""The role Leader: appends, serves fetches, advances the high watermark, checks its quorum (KIP-595)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.cluster.raft.messages import NO_NODE, BeginQuorumEpochRequest, Entry, FetchReply, LeaderChange
from odradek.cluster.raft.progress import Progress, committed_offset, majority, successors
from odradek.cluster.raft.roles.role import RoleState
from odradek.cluster.raft.roles.transitions import Event, Role, Transition
from odradek.invariants.invariant import CHECKS
from odradek.invariants.raft import RAFT_COMMIT_DURABLE
from odradek.protocol.errors import ErrorCode
from odradek.protocol.special_values import UNKNOWN_OFFSET

if TYPE_CHECKING:
    from odradek.cluster.raft.messages import FetchRequest, FetchSnapshotRequest, VoteRequest
    from odradek.cluster.raft.replica import Replica

OBSERVERS_MAX: Final = 1_000
"""Maximum observers per leader. To admit another one, the leader forgets an observer that does not fetch any more.

If all of them fetch, it forgets the one that was admitted last. So a flood of invented ids evicts itself, and not the
brokers that were there before.
"""


class LeaderState(RoleState):
    """State of the replica that leads one epoch."""

    role = Role.LEADER

    def __init__(self, replica: Replica, granting_voters: tuple[int, ...], now_ms: int) -> None:
        super().__init__(replica)
        self.epoch_start_offset = replica.log.end_offset
        self.progress = {voter: Progress(last_fetch_ms=now_ms) for voter in replica.voters}
        """Every voter, this node included, and the observers that have fetched."""
        self._granting_voters = granting_voters

    def begin(self, now_ms: int) -> None:
        """Append the first entry of the epoch and send BeginQuorumEpoch to all other voters."""
        replica, start = self.replica, self.epoch_start_offset
        change = LeaderChange(replica.node_id, replica.voters, self._granting_voters)
        replica.log.append(Entry(start, start, replica.epoch, change))
        self._begin_quorum_epoch(now_ms)

    def leave(self, next_epoch: int) -> None:
        """Refuse all parked fetches. The responses carry the epoch of the next role, whose leader is not known yet."""
        for progress in self.progress.values():
            request, progress.parked = progress.parked, None
            if request is not None:
                self.replica.outbox.send_early(
                    FetchReply(
                        self.replica.node_id,
                        request.source,
                        next_epoch,
                        NO_NODE,
                        request.fetch_offset,
                        read_end=request.fetch_offset,
                        error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        request_id=request.request_id,
                    )
                )

    def preferred_successors(self) -> tuple[int, ...]:
        """Return the other voters in the order in which they should start an election."""
        return successors({voter: self.progress[voter] for voter in self.replica.other_voters})

    @property
    def next_deadline_ms(self) -> int | None:
        deadlines = [each.parked_until_ms for each in self.progress.values() if each.parked is not None]
        deadlines += [self._begin_due_ms(self.progress[voter]) for voter in self.replica.other_voters]
        lost_ms = self._quorum_lost_ms()
        if lost_ms is not None:
            deadlines.append(lost_ms)
        return min(deadlines, default=None)

    def tick(self, now_ms: int) -> Transition | None:
        lost_ms = self._quorum_lost_ms()
        if lost_ms is not None and now_ms >= lost_ms:
            return Transition(Event.QUORUM_LOST)
        for progress in self.progress.values():
            request = progress.parked
            if request is not None and now_ms >= progress.parked_until_ms:
                progress.parked = None
                self._reply_to_fetch(request, high_watermark=self.replica.high_watermark)
        self._begin_quorum_epoch(now_ms)
        return None

    def grants(self, request: VoteRequest) -> bool:
        return False

    # ---- the log ----------------------------------------------------------------------------------------------------

    def append(self, data: bytes, count: int) -> Entry:
        """Append one batch of `count` offsets."""
        end = self.replica.log.end_offset
        entry = Entry(end, end + count - 1, self.replica.epoch, data)
        self.replica.log.append(entry)
        self._reply_to_parked()
        return entry

    def on_durable(self, now_ms: int) -> None:
        self._advance_high_watermark()

    def _advance_high_watermark(self) -> None:
        """Commit the offsets that a majority of the voters, this node's own disk included, has durably.

        Commit nothing before an entry of this epoch is among them (Raft paper 5.4.2, figure 8):
        1. A leader of epoch 2 replicates an entry to a minority and fails.
        2. The leader of epoch 3 never receives that entry.
        3. The first node leads again in epoch 4 and replicates the old entry to a majority.
        4. It fails, and the node of epoch 3 may still win and truncate that entry.
        """
        replica = self.replica
        ends = [
            replica.log.stable_end if voter == replica.node_id else self.progress[voter].end_offset
            for voter in replica.voters
        ]
        committed = committed_offset(ends)
        if committed > self.epoch_start_offset and committed > replica.high_watermark:
            if CHECKS.expensive and not (
                sum(end >= committed for end in ends) >= majority(len(replica.voters))
                and replica.log.epoch_of(committed - 1) == replica.epoch
            ):
                raise RAFT_COMMIT_DURABLE.violated(node_id=replica.node_id, committed=committed, durable_ends=ends)
            replica.commit(committed)
            replica.confirm(committed)
            self._reply_to_parked()

    # ---- fetches ----------------------------------------------------------------------------------------------------

    def on_fetch(self, request: FetchRequest, now_ms: int) -> None:
        error = self._epoch_error(request.epoch)
        if error is None and (request.fetch_offset < 0 or request.last_fetched_epoch < 0 or request.source < 0):
            error = ErrorCode.INVALID_REQUEST
        if error is not None:
            self._reply_to_fetch(request, high_watermark=self.replica.high_watermark, error=error)
            return
        log = self.replica.log
        progress = self._progress_of(request.source, now_ms)
        progress.fetch_received(now_ms)
        snapshot = log.snapshot_for(request.fetch_offset, request.last_fetched_epoch)
        diverging = log.divergence(request.fetch_offset, request.last_fetched_epoch) if snapshot is None else None
        if snapshot is not None or diverging is not None:
            progress.end_offset = UNKNOWN_OFFSET  # an end offset from before a restart of the replica is void
            self._reply_to_fetch(
                request, high_watermark=self.replica.high_watermark, diverging=diverging, snapshot=snapshot
            )
            return
        progress.acknowledged(request.fetch_offset, log.end_offset, now_ms)
        self._abort_parked(progress)
        progress.parked = request
        progress.parked_until_ms = now_ms + self.replica.config.fetch_wait_ms_max
        self._advance_high_watermark()
        self._reply_to_parked()

    def on_fetch_snapshot(self, request: FetchSnapshotRequest, now_ms: int) -> None:
        error = self._epoch_error(request.epoch)
        if error is None and request.position < 0:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        elif error is None and request.max_bytes <= 0:
            error = ErrorCode.INVALID_REQUEST
        if error is None and request.snapshot not in self.replica.log.snapshots:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        if error is None:
            self._progress_of(request.source, now_ms).fetch_received(now_ms)
        self._reply_to_fetch_snapshot(request, error)

    def _progress_of(self, node_id: int, now_ms: int) -> Progress:
        progress = self.progress.get(node_id)
        if progress is None:
            observers = [node for node in self.progress if node not in self.replica.voters]
            if len(observers) >= OBSERVERS_MAX:
                evicted = min(observers, key=lambda node: self.progress[node].last_fetch_ms)
                if now_ms - self.progress[evicted].last_fetch_ms < self.replica.config.check_quorum_timeout_ms:
                    evicted = observers[-1]  # `progress` has the order of admission
                self._abort_parked(self.progress.pop(evicted))
            progress = self.progress[node_id] = Progress()
        return progress

    def _reply_to_parked(self) -> None:
        """Reply to the parked fetches for which there are entries, or a later high watermark (KIP-1166)."""
        log_end, high_watermark = self.replica.log.end_offset, self.replica.high_watermark
        for progress in self.progress.values():
            request = progress.parked
            if request is None:
                continue
            if request.fetch_offset < log_end or request.high_watermark < high_watermark:
                progress.parked = None
                self._reply_to_fetch(request, high_watermark=high_watermark, read_end=log_end)

    def _abort_parked(self, progress: Progress) -> None:
        """Reply NETWORK_EXCEPTION to the parked fetch of a replica, because it fetches again or is removed.

        Most likely, the replica fetches again over a new connection. The response must be an error, because a replica
        backs off after an error. Otherwise two processes with one node id would abort each other's fetches in a loop.
        """
        request, progress.parked = progress.parked, None
        if request is not None:
            self._reply_to_fetch(request, high_watermark=self.replica.high_watermark, error=ErrorCode.NETWORK_EXCEPTION)

    # ---- the quorum -------------------------------------------------------------------------------------------------

    def _begin_quorum_epoch(self, now_ms: int) -> None:
        """Send BeginQuorumEpoch to every voter that has not fetched for a while."""
        replica = self.replica
        for voter in replica.other_voters:
            progress = self.progress[voter]
            if now_ms >= self._begin_due_ms(progress):
                progress.begin_sent_ms = now_ms
                request_id = replica.outbox.new_request_id()
                replica.outbox.send(BeginQuorumEpochRequest(replica.node_id, voter, replica.epoch, request_id))

    def _begin_due_ms(self, progress: Progress) -> int:
        if progress.begin_sent_ms is None:
            return progress.last_fetch_ms
        return max(progress.begin_sent_ms, progress.last_fetch_ms) + self.replica.config.begin_quorum_interval_ms

    def _quorum_lost_ms(self) -> int | None:
        """Return when the last fetch of the voter that completes the majority becomes too old. None: a single voter."""
        needed = majority(len(self.replica.voters)) - 1
        if needed == 0:
            return None
        fetches = sorted((self.progress[voter].last_fetch_ms for voter in self.replica.other_voters), reverse=True)
        return fetches[needed - 1] + self.replica.config.check_quorum_timeout_ms
