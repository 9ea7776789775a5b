"""The role Resigned: the replica led this epoch and does not lead it any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cluster.raft.epoch_limits import EPOCH_LAST
from odradek.cluster.raft.messages import NO_NODE, EndQuorumEpochRequest
from odradek.cluster.raft.roles.role import RoleState
from odradek.cluster.raft.roles.transitions import Event, Role, Transition

if TYPE_CHECKING:
    from odradek.cluster.raft.replica import Replica


class ResignedState(RoleState):
    """State of a former leader that waits for a new one.

    After the election time-out, the replica enters the next epoch, which has no leader yet. There is none after
    EPOCH_LAST: the replica stays in this role then.
    """

    role = Role.RESIGNED

    def __init__(self, replica: Replica, election_deadline_ms: int, preferred_successors: tuple[int, ...]) -> None:
        super().__init__(replica)
        self._election_deadline_ms = election_deadline_ms
        self._preferred_successors = preferred_successors

    @property
    def announced_leader_id(self) -> int:
        return NO_NODE

    def begin(self) -> None:
        """Send EndQuorumEpoch to all other voters."""
        replica = self.replica
        for voter in replica.other_voters:
            request_id = replica.outbox.new_request_id()
            replica.outbox.send(
                EndQuorumEpochRequest(replica.node_id, voter, replica.epoch, self._preferred_successors, request_id)
            )

    @property
    def next_deadline_ms(self) -> int:
        return self._election_deadline_ms

    def tick(self, now_ms: int) -> Transition | None:
        if now_ms < self._election_deadline_ms:
            return None
        if self.replica.epoch >= EPOCH_LAST:
            self._election_deadline_ms = now_ms + self.replica.timing.election_wait_ms()
            return None
        return Transition(Event.ELECTION_TIMEOUT, self.replica.epoch + 1)
