"""What must hold of a quorum after every single event. Knows of the nodes their role, epoch, high watermark and disk only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.cluster.raft.messages import VoteReply
from odradek.cluster.raft.roles.transitions import Role

if TYPE_CHECKING:
    from odradek.cluster.raft.core import RaftCore
    from odradek.cluster.raft.messages import Entry, EpochEnd, HardState

LOOKED_BACK = 200
"""Entries below the high watermark that are compared again and again."""


class Violated(AssertionError):
    """What was agreed is not agreed any more."""


@dataclass
class Disk:
    """`written` entries survive only up to `synced`; the rest is durable at once."""

    written: list[Entry] = field(default_factory=list)
    synced: int = 0
    hard_state: HardState | None = None
    start: int = 0
    snapshots: list[EpochEnd] = field(default_factory=list)
    part: bytes = b""

    @property
    def durable_end(self) -> int:
        return self.written[self.synced - 1].last_offset + 1 if self.synced else self.start


@dataclass
class Watch:
    """What has ever been true, and how often something worth seeing has happened."""

    voters: tuple[int, ...]
    disks: dict[int, Disk]
    leaders: dict[int, int] = field(default_factory=dict)
    votes: dict[tuple[int, int], int] = field(default_factory=dict)
    committed: list[tuple[Entry, int]] = field(default_factory=list)  # with the epoch of the leader that committed it
    high_watermarks: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    forgotten: dict[int, int] = field(default_factory=dict)
    truncations: int = 0
    installed: int = 0
    replaced: int = 0
    lost: int = 0

    @property
    def committed_end(self) -> int:
        return self.committed[-1][0].last_offset + 1 if self.committed else 0

    def starts(self, node: int, core: RaftCore) -> None:
        self.high_watermarks[node] = core.high_watermark

    def disk_is_replaced(self, node: int) -> None:
        self.replaced += 1
        self.forgotten[node] = self.disks[node].durable_end
        self.votes = {key: vote for key, vote in self.votes.items() if key[0] != node}
        self.epochs.pop(node, None)

    def had(self, node: int) -> int:
        """The end of what the node has, or had on the disk that it has lost: that was acknowledged all the same."""
        return max(self.disks[node].durable_end, self.forgotten.get(node, 0))

    def sent(self, message: object) -> None:
        """Nobody votes twice in an epoch, whatever it has forgotten of its memory."""
        if isinstance(message, VoteReply) and message.granted and not message.pre_vote:
            voted = self.votes.setdefault((message.source, message.epoch), message.target)
            if voted != message.target:
                raise Violated(f"node {message.source} votes twice in epoch {message.epoch}")

    def check(self, cores: dict[int, RaftCore]) -> None:
        for node, core in cores.items():
            if core.role is Role.LEADER:
                if core.epoch not in self.leaders:
                    self.leaders[core.epoch] = node
                    self._check_complete(node, core)
                elif self.leaders[core.epoch] != node:
                    raise Violated(f"epoch {core.epoch} has two leaders")
            stored = self.disks[node].hard_state
            if core.epoch < self.epochs.get(node, 0):
                raise Violated(f"the epoch of node {node} goes back")
            self.epochs[node] = 0 if stored is None else stored.epoch
            if core.high_watermark < self.high_watermarks[node]:
                raise Violated(f"the high watermark of node {node} goes back")
            if core.high_watermark > self.high_watermarks[node]:
                self.high_watermarks[node] = core.high_watermark
                self._check_committed(node, core)

    def _check_committed(self, node: int, core: RaftCore) -> None:
        """Everybody commits the same, and a majority has it durably at the moment when it is first said to be committed."""
        known = self.committed_end
        before = {entry.base_offset: entry for entry, _ in self.committed[-LOOKED_BACK:]}
        written = [entry for entry in self.disks[node].written if entry.base_offset >= core.log.start_offset]
        for entry in [*written, *core.log.unstable]:
            if entry.last_offset >= core.high_watermark:
                break
            if entry.base_offset >= known:
                self.committed.append((entry, core.epoch))
            elif before.get(entry.base_offset, entry) != entry:
                raise Violated(f"offset {entry.base_offset} is committed twice, differently")
        if core.high_watermark > known:
            having = [n for n in self.voters if self.had(n) >= core.high_watermark]
            if len(having) * 2 <= len(self.voters):
                raise Violated(f"offset {core.high_watermark} is committed, but only nodes {having} have it")

    def _check_complete(self, node: int, core: RaftCore) -> None:
        """A leader has everything that leaders before it have committed."""
        before = [entry for entry, epoch in self.committed[-LOOKED_BACK:] if epoch < core.epoch]
        if not before:
            return
        mine = {entry.base_offset: entry for entry in self.disks[node].written}
        mine.update((entry.base_offset, entry) for entry in core.log.unstable)
        if before[-1].last_offset >= core.log.end_offset:
            raise Violated(f"leader {node} of epoch {core.epoch} lacks offset {before[-1].last_offset}")
        for entry in before:
            if entry.base_offset in mine and mine[entry.base_offset] != entry:
                raise Violated(f"leader {node} of epoch {core.epoch} has something else at {entry.base_offset}")
