"""Who gets a vote, and how votes are counted. Pure functions of the receiver's state (KIP-595, KIP-996)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from odradek.cluster.raft.messages import NOBODY, Standing, VoteRequest
from odradek.cluster.raft.progress import majority

if TYPE_CHECKING:
    from odradek.cluster.raft.log_view import LogView


class Role(Enum):
    UNATTACHED = "Unattached"
    PROSPECTIVE = "Prospective"
    CANDIDATE = "Candidate"
    LEADER = "Leader"
    RESIGNED = "Resigned"
    FOLLOWER = "Follower"


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Time-outs in milliseconds, under Kafka's names (controller.quorum.*), with Kafka's defaults."""

    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_wait_ms_max: int = 500
    suspicion_delay_ms_max: int = 100
    hurried_round_ms: int = 150

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader that a majority has not fetched from for so long gives up."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_quorum_interval_ms(self) -> int:
        """A voter that has not fetched for so long is told again who leads."""
        return self.fetch_timeout_ms // 2


@dataclass(slots=True)
class Election:
    """The votes of one round. The asker has voted for itself.

    Raft's argument is that the majority which votes has a voter in common with the majority which has an entry. That voter
    must remember: so a majority is counted among ORDINARY voters, or among NEW ones over an empty log (the cluster begins).
    With anybody else it has to be all voters, of whom those that remember judge for those that do not.
    """

    voters: tuple[int, ...]
    counted: Standing  # LOST: none but all will do
    granted: dict[int, Standing] = field(default_factory=dict)
    rejected: dict[int, None] = field(default_factory=dict)
    sent_ms: dict[int, int] = field(default_factory=dict)

    @property
    def won(self) -> bool:
        return len(self.granted) == len(self.voters) or self._counted() >= majority(len(self.voters))

    @property
    def lost(self) -> bool:
        """Can it be won no more, whatever is still to come?"""
        hoped_for = self._counted() + (0 if self.counted is Standing.LOST else len(self.unanswered()))
        return bool(self.rejected) and hoped_for < majority(len(self.voters))

    def _counted(self) -> int:
        if self.counted is Standing.LOST:
            return 0
        return sum(standing is self.counted for standing in self.granted.values())

    def unanswered(self) -> list[int]:
        return [voter for voter in self.voters if voter not in self.granted and voter not in self.rejected]

    def record(self, voter: int, *, granted: bool, standing: Standing = Standing.ORDINARY) -> None:
        """The first answer of a voter counts; a repeated one changes nothing."""
        if voter not in self.voters or voter in self.granted or voter in self.rejected:
            return
        if granted:
            self.granted[voter] = standing
        else:
            self.rejected[voter] = None


def log_is_up_to_date(request: VoteRequest, log: LogView) -> bool:
    """Raft paper 5.4.1: compare the last epochs, then the log ends."""
    return (request.last_epoch, request.last_offset) >= (log.last_epoch, log.end_offset)


def may_grant(role: Role, request: VoteRequest, log: LogView, *, voted_id: int, leader_id: int, content: bool) -> bool:
    """Does a node in `role`, in the same epoch as `request`, grant it?

    A follower that is `content` with its leader (has heard it, and does not suspect it) refuses even a pre-vote, so that a
    node that was cut off cannot depose a leader that the others hear. Any other follower judges by the log alone.
    """
    up_to_date = log_is_up_to_date(request, log)
    if role is Role.LEADER:
        return False
    if request.pre_vote:
        return up_to_date and not (role is Role.FOLLOWER and content)
    if role not in {Role.UNATTACHED, Role.PROSPECTIVE}:
        return False
    if voted_id != NOBODY:
        return voted_id == request.source
    return leader_id == NOBODY and up_to_date
