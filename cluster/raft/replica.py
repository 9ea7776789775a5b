"""The part of a raft replica that outlasts its roles: log, hard state, high watermark, output."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from odradek.cluster.raft.epoch_limits import EPOCH_LAST, EpochBudget
from odradek.cluster.raft.messages import NO_NODE, HardState, Standing
from odradek.cluster.raft.outbox import Outbox
from odradek.cluster.raft.timing import ElectionTiming
from odradek.invariants.raft import RAFT_COMMITTED, RAFT_EPOCH, RAFT_EPOCH_RANGE, RAFT_ONE_LEADER, RAFT_ONE_VOTE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.cluster.raft.config import RaftConfig
    from odradek.cluster.raft.log_view import LogView
    from odradek.cluster.randomness import Randomness

REQUEST_IDS_FROM_MAX: Final = 2**48
"""Bound of the random first request id. Ids stay below 2**63 for as long as a process runs."""


class Replica:
    """One replica of the log, in whatever role. The role objects read it and change it through its methods."""

    def __init__(
        self,
        node_id: int,
        voters: Iterable[int],
        log: LogView,
        stored: HardState,
        *,
        rng: Randomness,
        config: RaftConfig,
    ) -> None:
        """Restore the replica from its disk: the log, and the `stored` hard state.

        The epoch is that of the log if the log has passed the stored epoch; leader and vote are then unknown.
        """
        self.node_id = node_id
        self.voters = tuple(sorted(dict.fromkeys(voters)))
        self.log = log
        self.config = config
        self.timing = ElectionTiming(config, rng)
        self._rng = rng
        standing = self._initial_standing(stored.standing)
        if log.last_epoch > stored.epoch:
            self.hard_state = HardState(log.last_epoch, standing=standing)
        else:
            self.hard_state = replace(stored, standing=standing)
        newest = log.latest_snapshot
        self.high_watermark = newest.end_offset if newest is not None else 0
        self._epoch_budget = EpochBudget()
        self.outbox = Outbox(rng.randrange(REQUEST_IDS_FROM_MAX))

    def _initial_standing(self, stored: Standing) -> Standing:
        """Return the standing with which the replica starts.

        An observer does not vote and a single voter depends on no other memory: both are ORDINARY. An ORDINARY voter
        always has entries: without any, it has lost them.
        """
        if not self.is_voter or self.is_only_voter:
            return Standing.ORDINARY
        if stored is Standing.ORDINARY and self.log.end_offset == 0:
            return Standing.LOST
        return stored

    @property
    def epoch(self) -> int:
        return self.hard_state.epoch

    @property
    def leader_id(self) -> int:
        return self.hard_state.leader_id

    @property
    def voted_id(self) -> int:
        return self.hard_state.voted_id

    @property
    def standing(self) -> Standing:
        return self.hard_state.standing

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.voters

    @property
    def is_only_voter(self) -> bool:
        return self.voters == (self.node_id,)

    @property
    def other_voters(self) -> tuple[int, ...]:
        return tuple(voter for voter in self.voters if voter != self.node_id)

    def random_voter(self) -> int:
        return self.voters[self._rng.randrange(len(self.voters))]

    def admits_epoch(self, epoch: int, now_ms: int) -> bool:
        """Return True if a valid request may raise the epoch to `epoch` now. It counts towards the budget."""
        return epoch <= EPOCH_LAST and self._epoch_budget.take(epoch - self.epoch, now_ms)

    def set_epoch(self, epoch: int, *, leader_id: int, voted_id: int) -> None:
        """Store epoch, leader and vote. The epoch never decreases."""
        if epoch < self.epoch:
            raise RAFT_EPOCH.violated(node_id=self.node_id, epoch=self.epoch, next_epoch=epoch)
        if epoch > EPOCH_LAST:
            raise RAFT_EPOCH_RANGE.violated(node_id=self.node_id, epoch=self.epoch, next_epoch=epoch)
        if epoch == self.epoch:
            if NO_NODE != self.leader_id != leader_id != NO_NODE:
                raise RAFT_ONE_LEADER.violated(
                    node_id=self.node_id, epoch=epoch, leader=self.leader_id, other=leader_id
                )
            if NO_NODE != self.voted_id != voted_id != NO_NODE:
                raise RAFT_ONE_VOTE.violated(node_id=self.node_id, epoch=epoch, voted=self.voted_id, next=voted_id)
        self.hard_state = replace(self.hard_state, epoch=epoch, leader_id=leader_id, voted_id=voted_id)

    def commit(self, high_watermark: int) -> None:
        """Advance the high watermark to `high_watermark` if that is later."""
        if high_watermark > self.log.end_offset:
            raise RAFT_COMMITTED.violated(
                node_id=self.node_id, high_watermark=high_watermark, end_offset=self.log.end_offset
            )
        self.high_watermark = max(self.high_watermark, high_watermark)

    def confirm(self, leader_high_watermark: int) -> None:
        """Become an ORDINARY voter if the log durably has all that can be committed.

        The leader of this epoch has committed all offsets below `leader_high_watermark`. A leader that has committed an
        entry of its own epoch knows all committed entries. A replica that has them durably has every entry that it can
        ever have acknowledged.
        """
        known = 0 < leader_high_watermark <= self.log.stable_end
        if known and self.log.epoch_of(leader_high_watermark - 1) == self.epoch:
            self.hard_state = replace(self.hard_state, standing=Standing.ORDINARY)

    def leader_truncated_all(self) -> None:
        """Note that a leader has truncated this log to offset 0.

        The cluster already exists, so a NEW voter must not begin another one.
        """
        if self.standing is Standing.NEW:
            self.hard_state = replace(self.hard_state, standing=Standing.LOST)
