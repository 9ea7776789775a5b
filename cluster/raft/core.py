"""The Raft core, in KRaft's variant: a value machine without clock, disk, network or randomness of its own.

    step(message, now_ms)   receive a message             propose(data, count)   append a batch to the leader's log
    tick(now_ms)            act on expired deadlines      take_ready() -> Ready, then advance() when it is carried out

The core differs from the Raft paper as Kafka does:
- Followers fetch, and a fetch acknowledges the log. If the logs diverge, the leader's response names the epoch and
  offset to truncate to (KIP-595).
- A voter sends pre-votes before it raises its epoch (KIP-996).
- The first entry of an epoch is a LEADER_CHANGE record. No entry is committed before one of the leader's own epoch is.

A node that is not a voter is an observer: it fetches and does not vote. A quorum of one voter takes the same
transitions without messages.

`Replica` holds what outlasts a role. Each role is an object of `roles/`, made by a transition; it owns the fields of
the role. This module validates the requests that every role handles in the same way, carries out the transitions that
`roles/transitions.py` lists, and collects the output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from odradek.cluster.raft.config import DEFAULT_CONFIG
from odradek.cluster.raft.epoch_limits import is_acceptable_in_reply
from odradek.cluster.raft.errors import NotLeader
from odradek.cluster.raft.messages import (
    NO_NODE,
    REPLIES,
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    Leadership,
    Ready,
    VoteReply,
    VoteRequest,
)
from odradek.cluster.raft.replica import Replica
from odradek.cluster.raft.roles.campaign import CandidateState, ProspectiveState
from odradek.cluster.raft.roles.follower import FollowerState
from odradek.cluster.raft.roles.leader import LeaderState
from odradek.cluster.raft.roles.resigned import ResignedState
from odradek.cluster.raft.roles.transitions import TRANSITIONS, Event, Role, Transition
from odradek.cluster.raft.roles.unattached import UnattachedState
from odradek.invariants.raft import RAFT_ELECTED_LEADER, RAFT_MESSAGE_TARGET, RAFT_READY_ORDER, RAFT_VOTERS_CAMPAIGN
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.cluster.raft.config import RaftConfig
    from odradek.cluster.raft.log_view import LogView
    from odradek.cluster.raft.messages import Entry, EpochEnd, HardState, Message, Standing
    from odradek.cluster.raft.roles.role import RoleState
    from odradek.cluster.randomness import Randomness


class RaftCore:
    """One replica of the log: its lasting part, its role, and the output for the driver."""

    def __init__(
        self,
        node_id: int,
        voters: Iterable[int],
        log: LogView,
        hard_state: HardState,
        *,
        rng: Randomness,
        config: RaftConfig = DEFAULT_CONFIG,
    ) -> None:
        """Restore the replica from its disk. Call `start` before any other method.

        `hard_state.standing` of a voter without a stored state is NEW; that of a voter that lacks a part of its log is
        LOST.
        """
        self.replica = Replica(node_id, voters, log, hard_state, rng=rng, config=config)
        self.state: RoleState = UnattachedState(self.replica, 0, 0)
        self._persisted = hard_state
        self._reported_leadership: Leadership | None = None
        self._reported_high_watermark = self.replica.high_watermark
        self._taken: Ready | None = None

    # ---- state of the replica ---------------------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        return self.replica.node_id

    @property
    def voters(self) -> tuple[int, ...]:
        return self.replica.voters

    @property
    def log(self) -> LogView:
        return self.replica.log

    @property
    def config(self) -> RaftConfig:
        return self.replica.config

    @property
    def epoch(self) -> int:
        return self.replica.epoch

    @property
    def leader_id(self) -> int:
        return self.replica.leader_id

    @property
    def voted_id(self) -> int:
        return self.replica.voted_id

    @property
    def standing(self) -> Standing:
        return self.replica.standing

    @property
    def high_watermark(self) -> int:
        return self.replica.high_watermark

    @property
    def role(self) -> Role:
        return self.state.role

    @property
    def leader_state(self) -> LeaderState | None:
        """The leader's state. None: this replica is not the leader."""
        return self.state if isinstance(self.state, LeaderState) else None

    @property
    def announced_leader_id(self) -> int:
        """The leader that responses name. It is none after this replica has resigned."""
        return self.state.announced_leader_id

    @property
    def next_deadline_ms(self) -> int | None:
        """The monotonic time of the next `tick`. None: no deadline before the next message."""
        return self.state.next_deadline_ms

    # ---- input ------------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Take the role that the stored state allows (KafkaRaftClient's rules).

        After a restart the first election time-out is short. A pre-vote does not depose a leader that is alive.
        """
        replica = self.replica
        replica.timing.expedite()
        if replica.is_only_voter:
            # The leader of the stored epoch, if there was one, was this node. It lost its unsynced entries.
            self.become_candidate(now_ms)
        elif replica.leader_id == replica.node_id:
            # A node does not lead the same epoch twice: entries that were not synced may have been lost.
            self.become_resigned(now_ms)
        elif replica.leader_id != NO_NODE:
            self.become_follower(replica.epoch, replica.leader_id, now_ms).restarted(now_ms)
        else:
            self.become_unattached(replica.epoch, now_ms, voted_id=replica.voted_id)

    def step(self, message: Message, now_ms: int) -> None:
        """Receive one message that is addressed to this node."""
        if message.target != self.node_id:
            raise RAFT_MESSAGE_TARGET.violated(node_id=self.node_id, message=message)
        match message:
            case _ if isinstance(message, REPLIES) and not is_acceptable_in_reply(message.epoch, self.epoch):
                pass  # the request times out, as if its response had been lost
            case FetchRequest():
                self.state.on_fetch(message, now_ms)
            case FetchReply():
                self._apply(self.state.on_fetch_reply(message, now_ms), now_ms)
            case VoteRequest():
                self._on_vote_request(message, now_ms)
            case VoteReply():
                self._apply(self.state.on_vote_reply(message, now_ms), now_ms)
            case BeginQuorumEpochRequest():
                self._on_begin_quorum_epoch(message, now_ms)
            case BeginQuorumEpochReply():
                self._apply(self.state.on_begin_quorum_epoch_reply(message), now_ms)
            case EndQuorumEpochRequest():
                self._on_end_quorum_epoch(message, now_ms)
            case EndQuorumEpochReply():
                self._apply(self.state.observe(message.epoch, message.leader_id), now_ms)
            case FetchSnapshotRequest():
                self.state.on_fetch_snapshot(message, now_ms)
            case FetchSnapshotReply():
                self._apply(self.state.on_fetch_snapshot_reply(message, now_ms), now_ms)
            case _:
                assert_never(message)

    def tick(self, now_ms: int) -> None:
        """Act on all deadlines up to `now_ms`."""
        self._apply(self.state.tick(now_ms), now_ms)

    def propose(self, data: bytes, count: int) -> Entry:
        """Append a batch of `count` offsets to the leader's log. Raise NotLeader if another role is taken."""
        if not isinstance(self.state, LeaderState):
            raise NotLeader
        return self.state.append(data, count)

    def suspect(self, leader_id: int, now_ms: int) -> None:
        """Start an election soon if the suspected node `leader_id` is the leader that this node follows.

        A wrong suspicion changes nothing: the leader, or a majority that it reaches, refuses the pre-vote.
        """
        if isinstance(self.state, FollowerState):
            self.state.suspect(leader_id, now_ms)

    def add_snapshot(self, snapshot: EpochEnd) -> None:
        """Note that a snapshot of all committed entries below its end is stored. `log.start_offset` may advance."""
        self.log.add_snapshot(snapshot)

    def resign(self, now_ms: int) -> None:
        """Give up the leadership (controlled shutdown), and notify the other voters of it."""
        if self.role is Role.LEADER and not self.replica.is_only_voter:
            self._apply(Transition(Event.RESIGNATION), now_ms)

    # ---- requests that every role handles in the same way -----------------------------------------------------------

    def _on_vote_request(self, request: VoteRequest, now_ms: int) -> None:
        error = self._vote_error(request, now_ms)
        if error is None and request.epoch > self.epoch:
            self._apply(Transition(Event.HIGHER_EPOCH, request.epoch), now_ms)
        granted = error is None and self.state.grants(request)
        if granted and not request.pre_vote and self.voted_id != request.source:
            self._apply(Transition(Event.VOTE_GRANTED, self.epoch, voted_id=request.source), now_ms)
        self.replica.outbox.send(
            VoteReply(
                self.node_id,
                request.source,
                self.epoch,
                self.announced_leader_id,
                granted,
                request.pre_vote,
                error or ErrorCode.NONE,
                request.request_id,
                self.standing,
            )
        )

    def _vote_error(self, request: VoteRequest, now_ms: int) -> ErrorCode | None:
        if request.epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        last_epoch_max = request.epoch if request.pre_vote else request.epoch - 1
        bad_log = request.last_offset < 0 or not 0 <= request.last_epoch <= last_epoch_max
        if bad_log or request.source not in self.replica.other_voters or not self.replica.is_voter:
            return ErrorCode.INVALID_REQUEST
        return None if self.replica.admits_epoch(request.epoch, now_ms) else ErrorCode.UNKNOWN_LEADER_EPOCH

    def _on_begin_quorum_epoch(self, request: BeginQuorumEpochRequest, now_ms: int) -> None:
        error = self._leader_error(request, now_ms)
        if error is ErrorCode.NONE and (request.epoch > self.epoch or self.role is not Role.FOLLOWER):
            self._apply(Transition(Event.LEADER_DISCOVERED, request.epoch, request.source), now_ms)
        self.replica.outbox.send(
            BeginQuorumEpochReply(
                self.node_id, request.source, self.epoch, self.announced_leader_id, error, request.request_id
            )
        )

    def _on_end_quorum_epoch(self, request: EndQuorumEpochRequest, now_ms: int) -> None:
        error = self._leader_error(request, now_ms)
        if error is ErrorCode.NONE:
            self._apply(self.state.observe(request.epoch, request.source), now_ms)
            if isinstance(self.state, FollowerState):
                self.state.leader_resigned(request.source, request.preferred_successors, now_ms)
        self.replica.outbox.send(
            EndQuorumEpochReply(
                self.node_id, request.source, self.epoch, self.announced_leader_id, error, request.request_id
            )
        )

    def _leader_error(self, request: BeginQuorumEpochRequest | EndQuorumEpochRequest, now_ms: int) -> ErrorCode:
        """Validate that the sender is another voter and can lead the epoch of its request. An epoch has one leader."""
        if request.epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        can_lead = request.epoch > self.epoch or self.leader_id in {NO_NODE, request.source}
        if not can_lead or request.source not in self.replica.other_voters:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE if self.replica.admits_epoch(request.epoch, now_ms) else ErrorCode.UNKNOWN_LEADER_EPOCH

    # ---- output -----------------------------------------------------------------------------------------------------

    def take_ready(self) -> Ready | None:
        """Return what the driver must carry out now, or None. Call `advance` before the next `take_ready`."""
        if self._taken is not None:
            raise RAFT_READY_ORDER.violated(node_id=self.node_id, not_carried_out=self._taken)
        replica = self.replica
        hard_state = replica.hard_state
        leadership = Leadership(replica.epoch, replica.leader_id, self.role is Role.LEADER)
        truncate_to, entries = replica.log.take()
        early_messages, messages, snapshot_part = replica.outbox.take()
        ready = Ready(
            hard_state if hard_state != self._persisted else None,
            truncate_to,
            entries,
            early_messages,
            messages,
            leadership if leadership != self._reported_leadership else None,
            replica.high_watermark if replica.high_watermark != self._reported_high_watermark else None,
            replica.log.end_offset,
            snapshot_part,
        )
        if ready.is_empty:
            return None
        self._persisted = hard_state
        self._reported_leadership = leadership
        self._reported_high_watermark = replica.high_watermark
        self._taken = ready
        return ready

    def advance(self, now_ms: int) -> None:
        """Note that the driver has carried out the last `Ready` durably."""
        taken, self._taken = self._taken, None
        if taken is None:
            raise RAFT_READY_ORDER.violated(node_id=self.node_id, carried_out=None)
        self.log.stable_to(taken.log_end_offset)
        self.state.on_durable(now_ms)

    # ---- transitions ------------------------------------------------------------------------------------------------

    def _apply(self, transition: Transition | None, now_ms: int) -> None:
        if transition is None:
            return
        match TRANSITIONS.look_up(self.role, transition.event):
            case Role.UNATTACHED:
                self.become_unattached(transition.epoch, now_ms, voted_id=transition.voted_id)
            case Role.PROSPECTIVE:
                self.become_prospective(now_ms)
            case Role.CANDIDATE:
                self.become_candidate(now_ms)
            case Role.LEADER:
                self.become_leader(now_ms)
            case Role.RESIGNED:
                self.become_resigned(now_ms)
            case Role.FOLLOWER:
                self.become_follower(transition.epoch, transition.leader_id, now_ms)

    def become_unattached(self, epoch: int, now_ms: int, *, voted_id: int = NO_NODE) -> None:
        """Become Unattached: no leader of `epoch` is known."""
        self._leave(epoch, leader_id=NO_NODE, voted_id=voted_id)
        self.state = UnattachedState(self.replica, now_ms, self._election_deadline_ms(now_ms))

    def become_prospective(self, now_ms: int) -> None:
        """Start a pre-vote round. Epoch, leader and vote stay unchanged."""
        replica = self.replica
        if not replica.is_voter:
            raise RAFT_VOTERS_CAMPAIGN.violated(node_id=replica.node_id, voters=replica.voters)
        self._leave(replica.epoch, leader_id=replica.leader_id, voted_id=replica.voted_id)
        state = self.state = ProspectiveState(replica, self._election_deadline_ms(now_ms))
        replica.timing.count_round()
        self._apply(state.begin(now_ms), now_ms)

    def become_candidate(self, now_ms: int) -> None:
        """Raise the epoch, vote for this node, and request votes. The vote is persisted before a request is sent."""
        replica = self.replica
        if not replica.is_voter:
            raise RAFT_VOTERS_CAMPAIGN.violated(node_id=replica.node_id, voters=replica.voters)
        self._leave(replica.epoch + 1, leader_id=NO_NODE, voted_id=replica.node_id)
        state = self.state = CandidateState(replica, self._election_deadline_ms(now_ms))
        self._apply(state.begin(now_ms), now_ms)

    def become_leader(self, now_ms: int) -> None:
        """Lead the epoch in which this node was elected."""
        replica, candidate = self.replica, self.state
        if not isinstance(candidate, CandidateState):
            raise RAFT_ELECTED_LEADER.violated(node_id=replica.node_id, epoch=replica.epoch, role=candidate.role)
        self._leave(replica.epoch, leader_id=replica.node_id, voted_id=NO_NODE)
        replica.timing.leader_is_alive()
        state = self.state = LeaderState(replica, tuple(sorted(candidate.election.granted)), now_ms)
        state.begin(now_ms)

    def become_resigned(self, now_ms: int) -> None:
        """Do not lead the epoch any more. The voters are notified, and this node waits for their election."""
        replica, leader = self.replica, self.leader_state
        successors = () if leader is None else leader.preferred_successors()
        self._leave(replica.epoch, leader_id=replica.node_id, voted_id=replica.voted_id)
        state = self.state = ResignedState(replica, self._election_deadline_ms(now_ms), successors)
        state.begin()

    def become_follower(self, epoch: int, leader_id: int, now_ms: int) -> FollowerState:
        """Follow the leader of `epoch`, and fetch from it."""
        if leader_id in {NO_NODE, self.node_id}:
            raise RAFT_ELECTED_LEADER.violated(node_id=self.node_id, epoch=epoch, leader_id=leader_id)
        self._leave(epoch, leader_id=leader_id, voted_id=NO_NODE)
        self.replica.timing.leader_is_alive()
        state = self.state = FollowerState(self.replica, now_ms)
        state.fetch(now_ms)
        return state

    def _leave(self, epoch: int, *, leader_id: int, voted_id: int) -> None:
        """End the current role and set epoch, leader and vote of the next one."""
        self.state.leave(epoch)
        self.replica.set_epoch(epoch, leader_id=leader_id, voted_id=voted_id)

    def _election_deadline_ms(self, now_ms: int) -> int:
        return now_ms + self.replica.timing.election_wait_ms()
