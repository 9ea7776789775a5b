"""Checks of a Raft quorum after each event. It reads only role, epoch, high watermark and disk of the nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.cluster.raft.messages import VoteReply
from odradek.cluster.raft.roles.transitions import Role

if TYPE_CHECKING:
    from odradek.cluster.raft.core import RaftCore
    from odradek.cluster.raft.messages import Entry, EpochEnd, HardState

COMPARED_ENTRIES = 200
"""Number of entries below the high watermark that each check compares."""


class Violated(AssertionError):
    """A Raft safety property does not hold."""


@dataclass
class Disk:
    """`written` entries survive only up to `synced`; other fields are durable immediately."""

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
    """History of a quorum (leaders, votes, committed entries), and counters of rare events."""

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

    def acknowledged_end(self, node: int) -> int:
        """Return the end of the node's durable log, including that of a lost disk: it was acknowledged."""
        return max(self.disks[node].durable_end, self.forgotten.get(node, 0))

    def sent(self, message: object) -> None:
        """Check that no node votes for two candidates in an epoch."""
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
        """Check that all nodes commit equal entries, and that a majority stores each committed entry durably."""
        known = self.committed_end
        before = {entry.base_offset: entry for entry, _ in self.committed[-COMPARED_ENTRIES:]}
        written = [entry for entry in self.disks[node].written if entry.base_offset >= core.log.start_offset]
        for entry in [*written, *core.log.unstable]:
            if entry.last_offset >= core.high_watermark:
                break
            if entry.base_offset >= known:
                self.committed.append((entry, core.epoch))
            elif before.get(entry.base_offset, entry) != entry:
                raise Violated(f"offset {entry.base_offset} is committed twice, differently")
        if core.high_watermark > known:
            holders = [n for n in self.voters if self.acknowledged_end(n) >= core.high_watermark]
            if len(holders) * 2 <= len(self.voters):
                raise Violated(f"offset {core.high_watermark} is committed, but only nodes {holders} have it")

    def _check_complete(self, node: int, core: RaftCore) -> None:
        """Check that a leader has all entries that earlier leaders committed."""
        before = [entry for entry, epoch in self.committed[-COMPARED_ENTRIES:] if epoch < core.epoch]
        if not before:
            return
        own_entries = {entry.base_offset: entry for entry in self.disks[node].written}
        own_entries.update((entry.base_offset, entry) for entry in core.log.unstable)
        if before[-1].last_offset >= core.log.end_offset:
            raise Violated(f"leader {node} of epoch {core.epoch} lacks offset {before[-1].last_offset}")
        for entry in before:
            if entry.base_offset in own_entries and own_entries[entry.base_offset] != entry:
                raise Violated(f"leader {node} of epoch {core.epoch} has something else at {entry.base_offset}")
