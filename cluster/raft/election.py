"""The votes of one election round, and how they are counted (KIP-595, KIP-996)."""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.cluster.raft.messages import Standing
from odradek.cluster.raft.progress import majority


@dataclass(slots=True)
class Election:
    """The votes of one round. The candidate has voted for itself.

    Raft's argument: the majority that votes and the majority that has an entry share at least one voter. That voter
    must remember its vote and its log. So a majority is counted among ORDINARY voters only, or among NEW voters over an
    empty log (a new cluster). Any other election needs the votes of all voters; the voters that remember then decide
    (docs/decisions/0040).
    """

    voters: tuple[int, ...]
    counted: Standing
    """The standing that counts towards a majority. LOST: no majority is enough; all voters must grant."""
    granted: dict[int, Standing] = field(default_factory=dict)
    rejected: dict[int, None] = field(default_factory=dict)
    sent_ms: dict[int, int] = field(default_factory=dict)
    """Monotonic time of the last vote request to each voter."""

    @property
    def won(self) -> bool:
        return len(self.granted) == len(self.voters) or self._counted() >= majority(len(self.voters))

    @property
    def lost(self) -> bool:
        """True if no outstanding vote can win this round."""
        possible = self._counted() + (0 if self.counted is Standing.LOST else len(self.outstanding()))
        return bool(self.rejected) and possible < majority(len(self.voters))

    def _counted(self) -> int:
        if self.counted is Standing.LOST:
            return 0
        return sum(standing is self.counted for standing in self.granted.values())

    def outstanding(self) -> list[int]:
        """Return the voters without a vote in this round."""
        return [voter for voter in self.voters if voter not in self.granted and voter not in self.rejected]

    def record(self, voter: int, *, granted: bool, standing: Standing = Standing.ORDINARY) -> None:
        """Count the first vote of `voter`. A repeated vote changes nothing."""
        if voter not in self.voters or voter in self.granted or voter in self.rejected:
            return
        if granted:
            self.granted[voter] = standing
        else:
            self.rejected[voter] = None

    def due(self, now_ms: int, request_timeout_ms: int) -> list[int]:
        """Return the voters to send a vote request to: the first one, or a repeated one after the request time-out."""
        due = []
        for voter in self.outstanding():
            sent_ms = self.sent_ms.get(voter)
            if sent_ms is None or now_ms - sent_ms >= request_timeout_ms:
                due.append(voter)
        return due

    def next_due_ms(self, request_timeout_ms: int) -> int | None:
        """Return the time of the next repeated vote request, or None if no request is outstanding."""
        sent_ms = [self.sent_ms[voter] for voter in self.outstanding() if voter in self.sent_ms]
        return min(sent_ms) + request_timeout_ms if sent_ms else None
