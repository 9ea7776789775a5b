"""Simulation of a Raft quorum with random faults, generated from a seed. raft_watch.py checks it after each event.

Faults: messages are delayed, lost, duplicated and reordered. Links fail in one or both directions. Nodes lose power
during writes, and with it entries that were not synced. Disks are slow. Running leaders are suspected. Snapshots
replace the log. Empty disks replace disks.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from odradek.cluster.raft.config import RaftConfig
from odradek.cluster.raft.core import RaftCore
from odradek.cluster.raft.log_view import LogView
from odradek.cluster.raft.messages import (
    BeginQuorumEpochRequest,
    EpochEnd,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    HardState,
    Message,
    Ready,
    SnapshotPart,
    Standing,
    VoteReply,
    VoteRequest,
)
from odradek.cluster.raft.roles.transitions import Role
from odradek.protocol.errors import ErrorCode
from tests.support.raft_watch import Disk, Violated, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG = RaftConfig(
    election_timeout_ms=200,
    fetch_timeout_ms=400,
    election_backoff_max_ms=200,
    request_timeout_ms=400,
    fetch_wait_ms_max=100,
    expedited_round_ms=60,
    suspicion_delay_ms_max=30,
)
PROPOSE_EVERY_MS = 15
DISK_IS_REPLACED_AFTER_MS = 700
"""Longer than a deposed leader counts on a voter: docs/decisions/0040."""
SNAPSHOT_PART_BYTES = 48
QUICKLY_MS = 10
SETTLES_WITHIN_MS = 6_000
KINDS = (
    *("crash", "crash", "leader", "partition", "one way", "heal", "heal", "heal", "suspect", "suspect"),
    *("resign", "snapshot", "snapshot", "snapshot", "blank"),
)


@dataclass
class Node:
    core: RaftCore
    incarnation: int
    busy: bool = False
    wake_ms: int | None = None


class RaftSim:
    """One simulation. `run(ms)` advances the time with faults; `settle()` ends the faults and checks agreement."""

    def __init__(self, seed: int, voters: int, observers: int = 0) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.voters = tuple(range(1, voters + 1))
        self.disks = {node: Disk() for node in range(1, voters + observers + 1)}
        self.nodes: dict[int, Node] = {}
        self.watch = Watch(self.voters, self.disks)
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.number = 0
        self.partitioned: dict[tuple[int, int], None] = {}
        self.loss = self.rng.choice([0.0, 0.02, 0.1])
        self.duplication = self.rng.choice([0.0, 0.05, 0.3])
        self.slowest_ms = self.rng.choice([3, 20, 80])
        moment = self.rng.choice([VoteReply, VoteRequest, BeginQuorumEpochRequest, FetchRequest, None])
        self.fragile: dict[type, float] = {} if moment is None else {moment: 0.01 if moment is FetchRequest else 0.2}
        self.disk_ms = self.rng.choice([1, 10, 60])
        self.incarnations = 0
        self.down_until_ms: dict[int, int] = {}
        self.faults = True
        self.proposals = 0
        for node in self.disks:
            self.restart(node)
        self.at(PROPOSE_EVERY_MS, self.propose)
        self.at(100, self.inject_fault)

    # ---- time -------------------------------------------------------------------------------------------------------

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.queue, (self.now_ms + delay_ms, self.number, action))

    def run(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while self.queue and self.queue[0][0] <= until_ms:
            self.now_ms, _, action = heapq.heappop(self.queue)
            action()
            self.watch.check({node: member.core for node, member in self.nodes.items()})
        self.now_ms = until_ms

    def settle(self) -> None:
        """End all faults. All nodes must agree and commit new proposals within SETTLES_WITHIN_MS."""
        self.faults = False
        self.partitioned.clear()
        self.loss = 0.0
        self.slowest_ms = self.disk_ms = 2
        for node in self.disks:
            if node not in self.nodes:
                self.restart(node)
        ends_ms = self.now_ms + SETTLES_WITHIN_MS
        while (missing := self.unsettled()) is not None:
            if self.now_ms >= ends_ms:
                raise Violated(f"{missing}, {SETTLES_WITHIN_MS} ms after the last fault")
            self.run(100)

    def unsettled(self) -> str | None:
        """Return why the quorum is not stable, or None: one leader commits, and all nodes have caught up."""
        before = len(self.watch.committed)
        end = self.watch.committed_end
        self.run(100)
        leaders = [node for node, member in self.nodes.items() if member.core.role is Role.LEADER]
        if len(leaders) != 1:
            return f"the leaders are {leaders}"
        if len(self.watch.committed) == before:
            return "nothing is committed"
        behind = [
            n
            for n, member in self.nodes.items()
            if member.core.standing is not Standing.ORDINARY or member.core.high_watermark < end
        ]
        return f"nodes {behind} have not caught up" if behind else None

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def restart(self, node: int) -> None:
        disk = self.disks[node]
        disk.written = disk.written[: disk.synced]
        if disk.snapshots and disk.durable_end < disk.snapshots[-1].end_offset:
            disk.written, disk.synced, disk.start = [], 0, disk.snapshots[-1].end_offset
        epochs: dict[int, int] = {}
        for entry in disk.written:
            epochs.setdefault(entry.epoch, entry.base_offset)
        log = LogView(epochs.items(), start_offset=disk.start, end_offset=disk.durable_end, snapshots=disk.snapshots)
        stored = disk.hard_state or HardState(standing=Standing.NEW)
        core = RaftCore(node, self.voters, log, stored, rng=self.rng, config=CONFIG)
        self.incarnations += 1
        self.nodes[node] = Node(core, self.incarnations)
        self.watch.starts(node, core)
        core.start(self.now_ms)
        self.work(node)

    def crash(self, node: int) -> None:
        self.watch.lost += len(self.disks[node].written) - self.disks[node].synced
        del self.nodes[node]

    def step(self, node: int, action: Callable[[RaftCore], None]) -> None:
        member = self.nodes.get(node)
        if member is not None:
            action(member.core)
            self.work(node)

    def work(self, node: int) -> None:
        """Start the core's pending work unless the disk is busy, and schedule its next tick."""
        member = self.nodes[node]
        if not member.busy and (ready := member.core.take_ready()) is not None:
            member.busy = True
            incarnation = member.incarnation
            state_ms = self.rng.randrange(self.disk_ms + 1) if ready.hard_state is not None else 0
            self.at(state_ms, lambda: self.write(node, incarnation, ready))
        due_ms = member.core.next_deadline_ms
        if due_ms is not None and (member.wake_ms is None or due_ms < member.wake_ms or member.wake_ms <= self.now_ms):
            member.wake_ms = max(due_ms, self.now_ms + 1)
            incarnation = member.incarnation
            self.at(member.wake_ms - self.now_ms, lambda: self.tick(node, incarnation))

    def tick(self, node: int, incarnation: int) -> None:
        member = self.nodes.get(node)
        if member is not None and member.incarnation == incarnation:
            member.wake_ms = None
            member.core.tick(self.now_ms)
            self.work(node)

    def write(self, node: int, incarnation: int, ready: Ready) -> None:
        member = self.nodes.get(node)
        if member is None or member.incarnation != incarnation:
            return
        disk = self.disks[node]
        if ready.hard_state is not None:
            disk.hard_state = ready.hard_state
        if ready.snapshot_part is not None:
            self.install(disk, ready.snapshot_part)
        if ready.truncate_to is not None:
            self.watch.truncations += 1
            disk.written = [entry for entry in disk.written if entry.last_offset < ready.truncate_to]
            disk.synced = min(disk.synced, len(disk.written))
        disk.written.extend(ready.entries)
        for message in ready.early_messages:
            self.send(message)
        sync_ms = self.rng.randrange(self.disk_ms + 1) if ready.must_sync else 0
        if sync_ms:
            self.at(sync_ms, lambda: self.written(node, incarnation, ready))
        else:
            self.written(node, incarnation, ready)

    def install(self, disk: Disk, part: SnapshotPart) -> None:
        disk.part = (disk.part if part.position else b"") + part.data
        if disk.part != snapshot_bytes(part.snapshot)[: part.position + len(part.data)]:
            raise Violated("a snapshot consists of wrong parts")
        if part.last:
            if len(disk.part) != len(snapshot_bytes(part.snapshot)):
                raise Violated("an incomplete snapshot was installed")
            self.watch.installed += 1
            disk.snapshots, disk.start, disk.written, disk.synced = [part.snapshot], part.snapshot.end_offset, [], 0

    def written(self, node: int, incarnation: int, ready: Ready) -> None:
        member = self.nodes.get(node)
        if member is None or member.incarnation != incarnation:
            return
        disk = self.disks[node]
        disk.synced = len(disk.written)
        for message in ready.messages:
            self.send(message)
        member.busy = False
        member.core.advance(self.now_ms)
        self.work(node)

    # ---- network ----------------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        disk = self.disks[message.source]
        if isinstance(message, FetchReply) and message.read_end > message.fetch_offset:
            entries = [e for e in disk.written if message.fetch_offset <= e.base_offset < message.read_end]
            limit = 1 + self.rng.randrange(8) if self.faults else len(entries)
            message = replace(message, entries=tuple(entries[:limit]))
        elif isinstance(message, FetchSnapshotReply) and message.error is ErrorCode.NONE:
            whole = snapshot_bytes(message.snapshot)
            data = whole[message.position : message.position + SNAPSHOT_PART_BYTES]
            message = replace(message, size=len(whole), data=data)
        self.watch.sent(message)
        if self.rng.random() >= self.loss:
            self.at(self.rng.randrange(1, self.slowest_ms + 1), lambda: self.deliver(message, disk))
        if self.faults and self.rng.random() < self.duplication:
            late_ms = self.rng.choice([self.slowest_ms, 10 * self.slowest_ms])
            self.at(self.rng.randrange(1, late_ms + 1), lambda: self.deliver(message, disk))
        if self.faults and self.rng.random() < self.fragile.get(type(message), 0.0):
            self.at(0, lambda: self.crash_for(message.source, QUICKLY_MS))

    def deliver(self, message: Message, disk: Disk) -> None:
        """Deliver a message, except one of a node whose disk was replaced since."""
        if (message.source, message.target) not in self.partitioned and self.disks[message.source] is disk:
            self.step(message.target, lambda core: core.step(message, self.now_ms))

    # ---- proposals and faults ---------------------------------------------------------------------------------------

    def propose(self) -> None:
        self.at(PROPOSE_EVERY_MS, self.propose)
        for node, member in self.nodes.items():
            if member.core.role is Role.LEADER and self.rng.random() < 0.7:
                self.proposals += 1
                data = b"%d" % self.proposals
                count = 1 + self.rng.randrange(2)
                self.step(node, lambda core, data=data, count=count: core.propose(data, count) and None)  # type: ignore[misc]

    def inject_fault(self) -> None:
        if not self.faults:
            return
        self.at(self.rng.randrange(10, 200), self.inject_fault)
        kind = self.rng.choice(KINDS)
        nodes = list(self.disks)
        node = self.rng.choice(nodes)
        if kind == "leader":
            leading = [n for n, member in self.nodes.items() if member.core.role is Role.LEADER]
            kind, node = "crash", self.rng.choice(leading) if leading else node
        if kind == "crash" and node in self.nodes:
            self.crash_for(node, self.rng.choice([QUICKLY_MS, 100, 300, 1_500]))
        elif kind == "partition":
            minority = [n for n in nodes if self.rng.random() < 0.4]
            self.partitioned = {(a, b): None for a in nodes for b in nodes if (a in minority) != (b in minority)}
        elif kind == "one way":
            self.partitioned = {(node, b): None for b in nodes}
        elif kind == "heal":
            self.partitioned = {}
        elif kind == "suspect" and node in self.nodes:
            self.step(node, lambda core: core.suspect(core.leader_id, self.now_ms))
        elif kind == "resign":
            self.step(node, lambda core: core.resign(self.now_ms))
        elif kind == "snapshot" and node in self.nodes:
            self.snapshot(node)
        elif kind == "blank":
            self.lose_disk(node)

    def crash_for(self, node: int, for_ms: int) -> None:
        if node in self.nodes:
            self.crash(node)
            self.at(for_ms, lambda: self.restart_if_down(node))

    def restart_if_down(self, node: int) -> None:
        if node not in self.nodes and self.now_ms >= self.down_until_ms.get(node, 0):
            self.restart(node)

    def snapshot(self, node: int) -> None:
        core, disk = self.nodes[node].core, self.disks[node]
        newest = core.log.latest_snapshot
        end = core.high_watermark
        if self.nodes[node].busy or end > core.log.stable_end or end <= (0 if newest is None else newest.end_offset):
            return
        core.add_snapshot(EpochEnd(core.log.epoch_of(end - 1), end))
        disk.snapshots, disk.start = list(core.log.snapshots), core.log.start_offset
        kept = [entry for entry in disk.written if entry.base_offset >= disk.start]
        disk.synced -= len(disk.written) - len(kept)
        disk.written = kept

    def lose_disk(self, node: int) -> None:
        """Replace the disk of a voter, if all other voters are ordinary and have all acknowledged entries."""
        others = [self.disks[n] for n in self.voters if n != node]
        if len(self.voters) < 3 or any(
            disk.hard_state is None or disk.hard_state.standing is not Standing.ORDINARY for disk in others
        ):
            return
        if any(self.watch.acknowledged_end(n) > self.disks[n].durable_end for n in self.voters):
            return
        if node in self.nodes:
            self.crash(node)
        self.watch.disk_is_replaced(node)
        self.disks[node] = Disk()
        self.down_until_ms[node] = self.now_ms + DISK_IS_REPLACED_AFTER_MS
        self.at(DISK_IS_REPLACED_AFTER_MS, lambda: self.restart_if_down(node))


def snapshot_bytes(snapshot: EpochEnd) -> bytes:
    """Return fake snapshot content that names its snapshot and takes more than one part."""
    return (b"state at %d of epoch %d. " % (snapshot.end_offset, snapshot.epoch)) * 4
