"""The roles Prospective and Candidate: pre-vote rounds and elections (KIP-996)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cluster.raft.election import Election
from odradek.cluster.raft.epoch_limits import EPOCH_LAST
from odradek.cluster.raft.messages import NO_NODE, Standing, VoteRequest
from odradek.cluster.raft.roles.role import RoleState
from odradek.cluster.raft.roles.transitions import Event, Role, Transition

if TYPE_CHECKING:
    from odradek.cluster.raft.messages import VoteReply
    from odradek.cluster.raft.replica import Replica


class CampaignState(RoleState):
    """One round of votes. The replica has voted for itself."""

    pre_vote: bool

    def __init__(self, replica: Replica, election_deadline_ms: int) -> None:
        super().__init__(replica)
        has_data = replica.log.end_offset > 0
        counted = Standing.LOST if replica.standing is Standing.NEW and has_data else replica.standing
        self.election = Election(replica.voters, counted, granted={replica.node_id: replica.standing})
        self._election_deadline_ms = election_deadline_ms

    def begin(self, now_ms: int) -> Transition | None:
        """Send the vote requests. A single voter has won already."""
        if self.election.won:
            return self._won()
        self._request_votes(now_ms)
        return None

    def _won(self) -> Transition:
        return Transition(Event.PRE_VOTE_WON if self.pre_vote else Event.ELECTION_WON)

    def _request_votes(self, now_ms: int) -> None:
        replica = self.replica
        for voter in self.election.due(now_ms, replica.config.request_timeout_ms):
            self.election.sent_ms[voter] = now_ms
            replica.outbox.send(
                VoteRequest(
                    replica.node_id,
                    voter,
                    replica.epoch,
                    replica.log.last_epoch,
                    replica.log.end_offset,
                    self.pre_vote,
                    replica.outbox.new_request_id(),
                )
            )

    @property
    def next_deadline_ms(self) -> int:
        repeat_ms = self.election.next_due_ms(self.replica.config.request_timeout_ms)
        return self._election_deadline_ms if repeat_ms is None else min(self._election_deadline_ms, repeat_ms)

    def tick(self, now_ms: int) -> Transition | None:
        if now_ms >= self._election_deadline_ms:
            return Transition(Event.ELECTION_TIMEOUT)
        self._request_votes(now_ms)
        return None


class ProspectiveState(CampaignState):
    """State of a replica that requests pre-votes. Leader and vote of the epoch stay unchanged."""

    role = Role.PROSPECTIVE
    pre_vote = True

    def grants(self, request: VoteRequest) -> bool:
        return self._grants_once(request)

    def on_vote_reply(self, reply: VoteReply, now_ms: int) -> Transition | None:
        replica = self.replica
        if not reply.pre_vote or reply.epoch != replica.epoch:
            return self.observe(reply.epoch, reply.leader_id)
        if reply.source == reply.leader_id == replica.leader_id and not reply.granted:
            return self._return_to_leader()  # the leader itself has refused, so it is alive
        self.election.record(reply.source, granted=reply.granted, standing=reply.standing)
        if self.election.lost or (self.election.won and replica.epoch >= EPOCH_LAST):
            return self._lost()
        if self.election.won:
            return self._won()
        # A voter that refuses may know a leader of this epoch that this replica does not know.
        return self.observe(reply.epoch, reply.leader_id)

    def _lost(self) -> Transition:
        replica = self.replica
        if replica.leader_id in {NO_NODE, replica.node_id}:
            return Transition(Event.PRE_VOTE_LOST, replica.epoch, voted_id=replica.voted_id)
        return self._return_to_leader()

    def _return_to_leader(self) -> Transition:
        return Transition(Event.LEADER_DISCOVERED, self.replica.epoch, self.replica.leader_id)


class CandidateState(CampaignState):
    """State of a replica that requests votes in an epoch that it has raised."""

    role = Role.CANDIDATE
    pre_vote = False

    def __init__(self, replica: Replica, election_deadline_ms: int) -> None:
        super().__init__(replica, election_deadline_ms)
        self._backing_off = False
        """The election is lost; the candidate waits for its back-off and sends nothing."""

    @property
    def next_deadline_ms(self) -> int:
        return self._election_deadline_ms if self._backing_off else super().next_deadline_ms

    def _request_votes(self, now_ms: int) -> None:
        if not self._backing_off:
            super()._request_votes(now_ms)

    def on_vote_reply(self, reply: VoteReply, now_ms: int) -> Transition | None:
        if reply.pre_vote or reply.epoch != self.replica.epoch:
            return self.observe(reply.epoch, reply.leader_id)
        self.election.record(reply.source, granted=reply.granted, standing=reply.standing)
        if self.election.won:
            return self._won()
        if self.election.lost and not self._backing_off:
            # Two candidates that lost to each other must not start their next rounds at the same time.
            self._backing_off = True
            self._election_deadline_ms = now_ms + self.replica.timing.backoff_ms()
            return None
        return self.observe(reply.epoch, reply.leader_id)
