"""The behavior that all roles of a raft replica share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from odradek.cluster.raft.errors import DifferentVoters
from odradek.cluster.raft.messages import (
    NO_NODE,
    BeginQuorumEpochReply,
    EpochEnd,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    VoteReply,
    VoteRequest,
)
from odradek.cluster.raft.roles.transitions import Event, Role, Transition
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.cluster.raft.replica import Replica


class RoleState(ABC):
    """One role of a replica, from the transition into it to the transition out of it.

    A subclass owns the fields of its role. A method that ends the role returns the Transition; the core carries it out.
    The methods here are the defaults for messages that a role does not expect.
    """

    role: ClassVar[Role]

    def __init__(self, replica: Replica) -> None:
        self.replica = replica

    @property
    def announced_leader_id(self) -> int:
        """Leader id of this epoch for responses."""
        return self.replica.leader_id

    @property
    @abstractmethod
    def next_deadline_ms(self) -> int | None:
        """The monotonic time of the next `tick`. None: no deadline."""

    @abstractmethod
    def tick(self, now_ms: int) -> Transition | None:
        """Act on all deadlines up to `now_ms`."""

    def leave(self, next_epoch: int) -> None:  # noqa: B027  most roles have nothing to clean up
        """End the role. The replica enters another role, in `next_epoch`."""

    def on_durable(self, now_ms: int) -> None:  # noqa: B027  most roles do not wait for the disk
        """Note that the log is durable up to `log.stable_end`."""

    # ---- votes ------------------------------------------------------------------------------------------------------

    def grants(self, request: VoteRequest) -> bool:
        """Return True if this replica grants a valid vote request of its own epoch."""
        return request.pre_vote and self._is_up_to_date(request)

    def _is_up_to_date(self, request: VoteRequest) -> bool:
        """Compare the logs (Raft paper 5.4.1): the last epochs first, then the end offsets."""
        return self.replica.log.is_at_most(request.last_epoch, request.last_offset)

    def _grants_once(self, request: VoteRequest) -> bool:
        """Grant a pre-vote by the log alone; grant a vote once per epoch, and only while no leader is known."""
        if request.pre_vote:
            return self._is_up_to_date(request)
        if self.replica.voted_id != NO_NODE:
            return self.replica.voted_id == request.source
        return self.replica.leader_id == NO_NODE and self._is_up_to_date(request)

    def on_vote_reply(self, reply: VoteReply, now_ms: int) -> Transition | None:
        return self.observe(reply.epoch, reply.leader_id)

    # ---- epochs and leaders -----------------------------------------------------------------------------------------

    def observe(self, epoch: int, leader_id: int) -> Transition | None:
        """Return the transition for a message with this epoch and leader. Raise DifferentVoters if no voter leads.

        None: the epoch is old, or the message brings nothing new.
        """
        replica = self.replica
        if epoch < replica.epoch:
            return None
        if leader_id not in {NO_NODE, *replica.voters}:
            raise DifferentVoters(
                f"node {leader_id} leads the metadata log, but the voters of this node are {list(replica.voters)}: set"
                " controller.quorum.voters to the same value on every node"
            )
        discovered = leader_id not in {NO_NODE, replica.node_id}
        if epoch > replica.epoch:
            event = Event.LEADER_DISCOVERED if discovered else Event.HIGHER_EPOCH
            return Transition(event, epoch, leader_id if discovered else NO_NODE)
        if discovered and replica.leader_id == NO_NODE:
            return Transition(Event.LEADER_DISCOVERED, epoch, leader_id)
        return None

    def on_begin_quorum_epoch_reply(self, reply: BeginQuorumEpochReply) -> Transition | None:
        return self.observe(reply.epoch, reply.leader_id) if reply.epoch > self.replica.epoch else None

    # ---- fetches ----------------------------------------------------------------------------------------------------

    def on_fetch(self, request: FetchRequest, now_ms: int) -> None:
        self._reply_to_fetch(request, error=self._epoch_error(request.epoch) or ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def on_fetch_snapshot(self, request: FetchSnapshotRequest, now_ms: int) -> None:
        error = self._epoch_error(request.epoch) or ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._reply_to_fetch_snapshot(request, error)

    def on_fetch_reply(self, reply: FetchReply, now_ms: int) -> Transition | None:
        """Ignore it: this role does not fetch."""
        return None

    def on_fetch_snapshot_reply(self, reply: FetchSnapshotReply, now_ms: int) -> Transition | None:
        """Ignore it: this role does not fetch."""
        return None

    def _epoch_error(self, epoch: int) -> ErrorCode | None:
        if epoch < self.replica.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.replica.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return None

    def _reply_to_fetch(
        self,
        request: FetchRequest,
        *,
        high_watermark: int = -1,
        read_end: int | None = None,
        diverging: EpochEnd | None = None,
        snapshot: EpochEnd | None = None,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.replica.outbox.send_early(
            FetchReply(
                self.replica.node_id,
                request.source,
                self.replica.epoch,
                self.announced_leader_id,
                request.fetch_offset,
                high_watermark,
                request.fetch_offset if read_end is None else read_end,
                diverging=diverging,
                snapshot=snapshot,
                error=error,
                request_id=request.request_id,
            )
        )

    def _reply_to_fetch_snapshot(self, request: FetchSnapshotRequest, error: ErrorCode | None) -> None:
        self.replica.outbox.send_early(
            FetchSnapshotReply(
                self.replica.node_id,
                request.source,
                self.replica.epoch,
                self.announced_leader_id,
                request.snapshot,
                request.position,
                request.max_bytes,
                error=error or ErrorCode.NONE,
                request_id=request.request_id,
            )
        )
