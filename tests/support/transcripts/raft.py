"""Commands of the golden transcripts of Raft: several Raft cores, their disks and a network in memory.

    * nodes 3 [voters=1,2,3]   Make and start nodes 1..n.
    * tick MS                  Advance the time; tick each node at its deadlines and deliver all messages
                             (empty fetches are not shown).
    * pass MS / wake N         Advance the time without ticks / tick node N.
    * stabilize                Run all cores and deliver messages until nothing is left.
    * ready N                  Run the pending work of node N; its messages stay on the network.
    * deliver [A->B] [n]       Deliver (the first n) queued messages, of one direction or of all.
    * drop [A->B]              Lose the queued messages.
    * propose N TEXT           Append a batch with TEXT at node N.
    * partition N[,N] / heal   Separate these nodes from the others / end the partition.
    * crash N / restart N      Power failure: entries that were not synced are lost.
    * blank N                  Replace the disk of N, which is down, by an empty one.
    * suspect N L              Report to N that node L is suspected.
    * disk N EPOCH E:TEXT ...  Start N in EPOCH with these entries, of epochs E, on its disk.
    * parts COUNT              Limit the entries per fetch response.
    * lead N                   Let N win an election in the next epoch; its messages stay on the network.
    * snapshot N               Let N make a snapshot of its committed entries.
    * slow N / fast N          Block / finish the disk operations of N.
    * resign N                 Let node N resign its leadership.
    * status                   Show one line per node.
    * log N                    Show the entries on the disk of N.

The random numbers of node n are always n tenths of the range, so that node 1 has the shortest timeouts.

See harness.py for the format of a transcript, and for how to update one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import ClassVar

from odradek.cluster.raft.core import RaftCore
from odradek.cluster.raft.errors import NotLeader
from odradek.cluster.raft.log_view import LogView
from odradek.cluster.raft.messages import (
    Entry,
    EpochEnd,
    FetchReply,
    FetchSnapshotReply,
    HardState,
    Message,
    Ready,
    SnapshotPart,
    Standing,
)
from odradek.cluster.raft.roles.transitions import Role
from odradek.protocol.errors import ErrorCode
from tests.support.transcripts.harness import Interpreter
from tests.support.transcripts.raft_format import (
    brings_nothing,
    describe,
    describe_entry,
    describe_snapshot,
    describe_snapshots,
    describe_standing,
    folded,
    snapshot_bytes,
)

ROUNDS_MAX = 200
SNAPSHOT_PART_BYTES = 16


class Fixed(random.Random):
    """Returns always the same part of the range."""

    def __init__(self, node_id: int) -> None:
        super().__init__(node_id)
        self.node_id = node_id

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        assert (stop, step) == (None, 1)
        return start * self.node_id // 10


@dataclass
class Disk:
    entries: list[Entry] = field(default_factory=list)
    synced: list[Entry] = field(default_factory=list)
    hard_state: HardState | None = None
    start_offset: int = 0
    snapshots: list[EpochEnd] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)


@dataclass
class RaftInterpreter(Interpreter):
    """Execute commands on the Raft cores of a quorum."""

    empty_output: ClassVar = ("ok",)

    now_ms: int = 0
    cores: dict[int, RaftCore] = field(default_factory=dict)
    disks: dict[int, Disk] = field(default_factory=dict)
    voters: tuple[int, ...] = ()
    network: list[Message] = field(default_factory=list)
    apart: tuple[int, ...] = ()
    slow: dict[int, Ready | None] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    quiet: bool = False
    entries_max: int | None = None

    def run(self, command: str) -> str:
        """Execute one command outside a transcript and return its output."""
        self.dispatch(command)
        return "\n".join(self.collect(None)) or "ok"

    def collect(self, result: None) -> list[str]:
        output, self.lines = folded(self.lines), []
        return output

    # ---- commands ---------------------------------------------------------------------------------------------------

    def do_nodes(self, count: str, voters: str = "") -> None:
        self.voters = tuple(int(v) for v in voters.removeprefix("voters=").split(",")) if voters else ()
        self.voters = self.voters or tuple(range(1, int(count) + 1))
        for node in range(1, int(count) + 1):
            self.disks[node] = Disk()
            self.do_restart(str(node))

    def do_restart(self, node_text: str) -> None:
        node = int(node_text)
        disk = self.disks[node]
        disk.entries = list(disk.synced)
        epochs: dict[int, int] = {}
        for entry in disk.entries:
            epochs.setdefault(entry.epoch, entry.base_offset)
        end = disk.entries[-1].last_offset + 1 if disk.entries else disk.start_offset
        log = LogView(epochs.items(), start_offset=disk.start_offset, end_offset=end, snapshots=disk.snapshots)
        stored = disk.hard_state or HardState(standing=Standing.NEW)
        core = RaftCore(node, self.voters, log, stored, rng=Fixed(node))
        self.cores[node] = core
        self.slow.pop(node, None)
        core.start(self.now_ms)

    def do_crash(self, node: str) -> None:
        del self.cores[int(node)]
        self.slow.pop(int(node), None)

    def do_blank(self, node: str) -> None:
        assert int(node) not in self.cores
        self.disks[int(node)] = Disk()

    def do_disk(self, node: str, epoch: str, *texts: str) -> None:
        entries = []
        for offset, text in enumerate(texts):
            written, data = text.split(":")
            entries.append(Entry(offset, offset, int(written), data.encode()))
        self.cores.pop(int(node), None)
        self.disks[int(node)] = Disk(entries, list(entries), HardState(int(epoch)))
        self.do_restart(node)

    def do_parts(self, count: str) -> None:
        self.entries_max = int(count)

    def do_lead(self, node_text: str) -> None:
        node = int(node_text)
        self.network.clear()
        for other in self.cores:
            self.work(other)
        while (role := self.cores[node].role) is not Role.LEADER:
            before = len(self.lines)
            if role not in {Role.PROSPECTIVE, Role.CANDIDATE}:
                self.cores[node].become_prospective(self.now_ms)
            self.work_all()
            self.do_deliver()
            assert len(self.lines) > before, "it cannot win"

    def do_suspect(self, node: str, leader: str) -> None:
        self.cores[int(node)].suspect(int(leader), self.now_ms)

    def do_snapshot(self, node_text: str) -> None:
        node = int(node_text)
        core, disk = self.cores[node], self.disks[node]
        end = core.high_watermark
        newest = core.log.latest_snapshot
        if end > core.log.stable_end or end == (0 if newest is None else newest.end_offset):
            self.lines.append("nothing to make one of")
            return
        core.add_snapshot(EpochEnd(core.log.epoch_of(end - 1), end))
        disk.snapshots = list(core.log.snapshots)
        disk.start_offset = core.log.start_offset
        disk.entries = [entry for entry in disk.entries if entry.base_offset >= disk.start_offset]
        disk.synced = [entry for entry in disk.synced if entry.base_offset >= disk.start_offset]
        self.lines.append(f"{node}: log from {disk.start_offset}, snapshots {describe_snapshots(disk.snapshots)}")

    def do_slow(self, node: str) -> None:
        self.slow[int(node)] = None

    def do_fast(self, node_text: str) -> None:
        node = int(node_text)
        ready = self.slow.pop(node)
        if ready is not None:
            self.finish(node, ready)

    def do_partition(self, nodes: str) -> None:
        self.apart = tuple(int(node) for node in nodes.split(","))

    def do_heal(self) -> None:
        self.apart = ()

    def do_propose(self, node: str, text: str) -> None:
        try:
            entry = self.cores[int(node)].propose(text.encode(), 1)
        except NotLeader:
            self.lines.append("not the leader")
        else:
            self.lines.append(f"at {entry.base_offset} in epoch {entry.epoch}")

    def do_resign(self, node: str) -> None:
        self.cores[int(node)].resign(self.now_ms)

    def do_tick(self, ms: str) -> None:
        until_ms = self.now_ms + int(ms)
        self.quiet = True
        for _ in range(ROUNDS_MAX):
            deadlines = {node: core.next_deadline_ms for node, core in self.cores.items()}
            due = {node: at for node, at in deadlines.items() if at is not None and at <= until_ms}
            if not due:
                self.now_ms = until_ms
                self.quiet = False
                return
            node = min(due, key=lambda candidate: (due[candidate], candidate))
            self.now_ms = max(self.now_ms, due[node])
            self.cores[node].tick(self.now_ms)
            self.do_stabilize()
        raise AssertionError("the cores never come to rest")

    def do_pass(self, ms: str) -> None:
        self.now_ms += int(ms)

    def do_wake(self, node: str) -> None:
        self.cores[int(node)].tick(self.now_ms)
        self.work(int(node))

    def do_ready(self, node: str) -> None:
        self.work(int(node))

    def do_stabilize(self) -> None:
        for _ in range(ROUNDS_MAX):
            self.work_all()
            if not self.network:
                return
            self.do_deliver()
        raise AssertionError("the cores never come to rest")

    def do_deliver(self, way: str = "", count: str = "") -> None:
        limit = int(count) if count else len(self.network)
        for message in list(self.network):
            if limit == 0:
                return
            if way and way != f"{message.source}->{message.target}":
                continue
            limit -= 1
            self.network.remove(message)
            self.hand_over(message)

    def do_drop(self, way: str = "") -> None:
        lost = [m for m in self.network if not way or way == f"{m.source}->{m.target}"]
        for message in lost:
            self.network.remove(message)
            self.lines.append(f"lost {describe(message)}")

    def do_status(self) -> None:
        for node in self.disks:
            core = self.cores.get(node)
            if core is None:
                self.lines.append(f"{node}: down")
                continue
            log = core.log
            self.lines.append(
                f"{node}: {core.role.value} epoch={core.epoch} leader={core.leader_id} vote={core.voted_id}"
                f" log=[{log.start_offset},{log.end_offset}) stable={log.stable_end} committed={core.high_watermark}"
                + describe_standing(core.standing)
            )

    def do_log(self, node: str) -> None:
        self.lines.append(" ".join(describe_entry(entry) for entry in self.disks[int(node)].entries))

    # ---- work of the driver -----------------------------------------------------------------------------------------

    def work_all(self) -> None:
        for node in list(self.cores):
            self.work(node)

    def work(self, node: int) -> None:
        core = self.cores[node]
        while not self.slow.get(node) and (ready := core.take_ready()) is not None:
            self.begin(node, ready)
            if node in self.slow and ready.must_sync:
                self.slow[node] = ready
                return
            self.finish(node, ready)

    def begin(self, node: int, ready: Ready) -> None:
        disk = self.disks[node]
        if ready.leadership is not None:
            role, leadership = self.cores[node].role.value, ready.leadership
            self.lines.append(f"{node}: {role} epoch={leadership.epoch} leader={leadership.leader_id}")
        if ready.high_watermark is not None:
            self.lines.append(f"{node}: committed {ready.high_watermark}")
        if ready.hard_state is not None:
            state = disk.hard_state = ready.hard_state
            self.lines.append(
                f"{node}: saves epoch={state.epoch} leader={state.leader_id} vote={state.voted_id}"
                + describe_standing(state.standing)
            )
        if ready.snapshot_part is not None:
            self.install(node, ready.snapshot_part)
        if ready.truncate_to is not None:
            disk.entries = [entry for entry in disk.entries if entry.last_offset < ready.truncate_to]
            disk.synced = [entry for entry in disk.synced if entry.last_offset < ready.truncate_to]
            self.lines.append(f"{node}: truncates to {ready.truncate_to}")
        if ready.entries:
            disk.entries.extend(ready.entries)
            self.lines.append(f"{node}: writes {' '.join(describe_entry(entry) for entry in ready.entries)}")
        for message in ready.early_messages:
            self.send(message)

    def install(self, node: int, part: SnapshotPart) -> None:
        disk = self.disks[node]
        disk.parts = [*(disk.parts if part.position else []), part.data]
        assert b"".join(disk.parts) == snapshot_bytes(part.snapshot)[: part.position + len(part.data)]
        self.lines.append(f"{node}: keeps {describe_snapshot(part.snapshot)} to byte {part.position + len(part.data)}")
        if part.last:
            disk.snapshots, disk.start_offset = [part.snapshot], part.snapshot.end_offset
            disk.entries, disk.synced, disk.parts = [], [], []
            self.lines.append(f"{node}: begins at {disk.start_offset}")

    def finish(self, node: int, ready: Ready) -> None:
        disk = self.disks[node]
        disk.synced = list(disk.entries)
        for message in ready.messages:
            self.send(message)
        self.cores[node].advance(self.now_ms)

    def send(self, message: Message) -> None:
        if isinstance(message, FetchReply) and message.read_end > message.fetch_offset:
            stored = self.disks[message.source].entries
            message = replace(
                message,
                entries=tuple(e for e in stored if message.fetch_offset <= e.base_offset < message.read_end)[
                    : self.entries_max
                ],
            )
        if isinstance(message, FetchSnapshotReply) and message.error is ErrorCode.NONE:
            whole = snapshot_bytes(message.snapshot)
            message = replace(
                message, size=len(whole), data=whole[message.position : message.position + SNAPSHOT_PART_BYTES]
            )
        self.network.append(message)

    def hand_over(self, message: Message) -> None:
        separated = (message.source in self.apart) != (message.target in self.apart)
        core = self.cores.get(message.target)
        if separated or core is None:
            if not (self.quiet and brings_nothing(message)):
                self.lines.append(f"lost {describe(message)}")
            return
        if not (self.quiet and brings_nothing(message)):
            self.lines.append(describe(message))
        core.step(message, self.now_ms)
