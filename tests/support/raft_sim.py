"""Whole lives of a quorum in memory, drawn from a seed; `raft_watch` says what must hold after every single event.

Messages are late, lost, doubled and overtake each other; links fail in one direction or both; nodes lose power in the middle
of a write, with everything that was not synced; disks are slow; leaders are suspected, rightly or not; snapshots replace the
log; disks are replaced by empty ones.
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
"""Longer than a deposed leader may go on counting on a voter: docs/decisions/0040."""
SNAPSHOT_PART_BYTES = 48
QUICKLY_MS = 10
SETTLES_WITHIN_MS = 6_000
KINDS = (
    *("crash", "crash", "leader", "cut", "one way", "heal", "heal", "heal", "suspect", "suspect"),
    *("resign", "snapshot", "snapshot", "snapshot", "blank"),
)


@dataclass
class Node:
    core: RaftCore
    life: int
    busy: bool = False
    wake_ms: int | None = None


class RaftSim:
    """One run. `run(ms)` lets time pass under faults, `settle()` ends them and demands agreement."""

    def __init__(self, seed: int, voters: int, observers: int = 0) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.voters = tuple(range(1, voters + 1))
        self.disks = {node: Disk() for node in range(1, voters + observers + 1)}
        self.nodes: dict[int, Node] = {}
        self.watch = Watch(self.voters, self.disks)
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.number = 0
        self.cut: dict[tuple[int, int], None] = {}
        self.loss = self.rng.choice([0.0, 0.02, 0.1])
        self.doubled = self.rng.choice([0.0, 0.05, 0.3])
        self.slowest_ms = self.rng.choice([3, 20, 80])
        moment = self.rng.choice([VoteReply, VoteRequest, BeginQuorumEpochRequest, FetchRequest, None])
        self.fragile: dict[type, float] = {} if moment is None else {moment: 0.01 if moment is FetchRequest else 0.2}
        self.disk_ms = self.rng.choice([1, 10, 60])
        self.lives = 0
        self.away: dict[int, int] = {}
        self.faults = True
        self.proposals = 0
        for node in self.disks:
            self.restart(node)
        self.at(PROPOSE_EVERY_MS, self.propose)
        self.at(100, self.trouble)

    # ---- time -----------------------------------------------------------------------------------------------------------

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.queue, (self.now_ms + delay_ms, self.number, action))

    def run(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while self.queue and self.queue[0][0] <= until_ms:
            self.now_ms, _, action = heapq.heappop(self.queue)
            action()
            self.watch.check({node: each.core for node, each in self.nodes.items()})
        self.now_ms = until_ms

    def settle(self) -> None:
        """No more faults: everybody comes to agree, and commits what is proposed then."""
        self.faults = False
        self.cut.clear()
        self.loss = 0.0
        self.slowest_ms = self.disk_ms = 2
        for node in self.disks:
            if node not in self.nodes:
                self.restart(node)
        ends_ms = self.now_ms + SETTLES_WITHIN_MS
        while (missing := self.unsettled()) is not None:
            if self.now_ms >= ends_ms:
                raise Violated(f"{missing}, long after everything is well again")
            self.run(100)

    def unsettled(self) -> str | None:
        """What is missing to peace: one leader that commits, and everybody behind it."""
        before = len(self.watch.committed)
        end = self.watch.committed_end
        self.run(100)
        leaders = [node for node, each in self.nodes.items() if each.core.role is Role.LEADER]
        if len(leaders) != 1:
            return f"the leaders are {leaders}"
        if len(self.watch.committed) == before:
            return "nothing is committed"
        behind = [
            n
            for n, each in self.nodes.items()
            if each.core.standing is not Standing.ORDINARY or each.core.high_watermark < end
        ]
        return f"nodes {behind} have not caught up" if behind else None

    # ---- nodes ----------------------------------------------------------------------------------------------------------

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
        self.lives += 1
        self.nodes[node] = Node(core, self.lives)
        self.watch.starts(node, core)
        core.start(self.now_ms)
        self.work(node)

    def crash(self, node: int) -> None:
        self.watch.lost += len(self.disks[node].written) - self.disks[node].synced
        del self.nodes[node]

    def step(self, node: int, action: Callable[[RaftCore], None]) -> None:
        each = self.nodes.get(node)
        if each is not None:
            action(each.core)
            self.work(node)

    def work(self, node: int) -> None:
        """Begin with what the core asks for, unless the disk is at work; look at the clock again when it has to be."""
        each = self.nodes[node]
        if not each.busy and (ready := each.core.take_ready()) is not None:
            each.busy = True
            life = each.life
            state_ms = self.rng.randrange(self.disk_ms + 1) if ready.hard_state is not None else 0
            self.at(state_ms, lambda: self.write(node, life, ready))
        due_ms = each.core.next_deadline_ms
        if due_ms is not None and (each.wake_ms is None or due_ms < each.wake_ms or each.wake_ms <= self.now_ms):
            each.wake_ms = max(due_ms, self.now_ms + 1)
            life = each.life
            self.at(each.wake_ms - self.now_ms, lambda: self.tick(node, life))

    def tick(self, node: int, life: int) -> None:
        each = self.nodes.get(node)
        if each is not None and each.life == life:
            each.wake_ms = None
            each.core.tick(self.now_ms)
            self.work(node)

    def write(self, node: int, life: int, ready: Ready) -> None:
        each = self.nodes.get(node)
        if each is None or each.life != life:
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
            self.at(sync_ms, lambda: self.written(node, life, ready))
        else:
            self.written(node, life, ready)

    def install(self, disk: Disk, part: SnapshotPart) -> None:
        disk.part = (disk.part if part.position else b"") + part.data
        if disk.part != snapshot_bytes(part.snapshot)[: part.position + len(part.data)]:
            raise Violated("a snapshot is put together from the wrong parts")
        if part.last:
            if len(disk.part) != len(snapshot_bytes(part.snapshot)):
                raise Violated("half a snapshot is taken for a whole one")
            self.watch.installed += 1
            disk.snapshots, disk.start, disk.written, disk.synced = [part.snapshot], part.snapshot.end_offset, [], 0

    def written(self, node: int, life: int, ready: Ready) -> None:
        each = self.nodes.get(node)
        if each is None or each.life != life:
            return
        disk = self.disks[node]
        disk.synced = len(disk.written)
        for message in ready.messages:
            self.send(message)
        each.busy = False
        each.core.advance(self.now_ms)
        self.work(node)

    # ---- network --------------------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        disk = self.disks[message.source]
        if isinstance(message, FetchReply) and message.read_end > message.fetch_offset:
            found = [e for e in disk.written if message.fetch_offset <= e.base_offset < message.read_end]
            limit = 1 + self.rng.randrange(8) if self.faults else len(found)
            message = replace(message, entries=tuple(found[:limit]))
        elif isinstance(message, FetchSnapshotReply) and message.error is ErrorCode.NONE:
            whole = snapshot_bytes(message.snapshot)
            data = whole[message.position : message.position + SNAPSHOT_PART_BYTES]
            message = replace(message, size=len(whole), data=data)
        self.watch.sent(message)
        if self.rng.random() >= self.loss:
            self.at(self.rng.randrange(1, self.slowest_ms + 1), lambda: self.deliver(message, disk))
        if self.faults and self.rng.random() < self.doubled:
            late_ms = self.rng.choice([self.slowest_ms, 10 * self.slowest_ms])
            self.at(self.rng.randrange(1, late_ms + 1), lambda: self.deliver(message, disk))
        if self.faults and self.rng.random() < self.fragile.get(type(message), 0.0):
            self.at(0, lambda: self.falls(message.source, QUICKLY_MS))

    def deliver(self, message: Message, disk: Disk) -> None:
        """What a voter has sent is not in the network any more when its disk has been replaced."""
        if (message.source, message.target) not in self.cut and self.disks[message.source] is disk:
            self.step(message.target, lambda core: core.step(message, self.now_ms))

    # ---- what happens ---------------------------------------------------------------------------------------------------

    def propose(self) -> None:
        self.at(PROPOSE_EVERY_MS, self.propose)
        for node, each in self.nodes.items():
            if each.core.role is Role.LEADER and self.rng.random() < 0.7:
                self.proposals += 1
                data = b"%d" % self.proposals
                count = 1 + self.rng.randrange(2)
                self.step(node, lambda core, data=data, count=count: core.propose(data, count) and None)  # type: ignore[misc]

    def trouble(self) -> None:
        if not self.faults:
            return
        self.at(self.rng.randrange(10, 200), self.trouble)
        kind = self.rng.choice(KINDS)
        nodes = list(self.disks)
        node = self.rng.choice(nodes)
        if kind == "leader":
            leading = [n for n, each in self.nodes.items() if each.core.role is Role.LEADER]
            kind, node = "crash", self.rng.choice(leading) if leading else node
        if kind == "crash" and node in self.nodes:
            self.falls(node, self.rng.choice([QUICKLY_MS, 100, 300, 1_500]))
        elif kind == "cut":
            apart = [n for n in nodes if self.rng.random() < 0.4]
            self.cut = {(a, b): None for a in nodes for b in nodes if (a in apart) != (b in apart)}
        elif kind == "one way":
            self.cut = {(node, b): None for b in nodes}
        elif kind == "heal":
            self.cut = {}
        elif kind == "suspect" and node in self.nodes:
            self.step(node, lambda core: core.suspect(core.leader_id, self.now_ms))
        elif kind == "resign":
            self.step(node, lambda core: core.resign(self.now_ms))
        elif kind == "snapshot" and node in self.nodes:
            self.snapshot(node)
        elif kind == "blank":
            self.lose_disk(node)

    def falls(self, node: int, for_ms: int) -> None:
        if node in self.nodes:
            self.crash(node)
            self.at(for_ms, lambda: self.comes_back(node))

    def comes_back(self, node: int) -> None:
        if node not in self.nodes and self.now_ms >= self.away.get(node, 0):
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
        """Only one voter at a time may have forgotten anything, and only while all others are ordinary ones."""
        others = [self.disks[n] for n in self.voters if n != node]
        if len(self.voters) < 3 or any(
            disk.hard_state is None or disk.hard_state.standing is not Standing.ORDINARY for disk in others
        ):
            return
        if any(self.watch.had(n) > self.disks[n].durable_end for n in self.voters):
            return
        if node in self.nodes:
            self.crash(node)
        self.watch.disk_is_replaced(node)
        self.disks[node] = Disk()
        self.away[node] = self.now_ms + DISK_IS_REPLACED_AFTER_MS
        self.at(DISK_IS_REPLACED_AFTER_MS, lambda: self.comes_back(node))


def snapshot_bytes(snapshot: EpochEnd) -> bytes:
    """What stands for a snapshot's content: it says which one it is, and comes in more than one part."""
    return (b"state at %d of epoch %d. " % (snapshot.end_offset, snapshot.epoch)) * 4
