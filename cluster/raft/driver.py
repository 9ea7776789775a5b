"""Run a Raft core: take its Ready, persist, send, advance. The driver is the ShardLog of the controller.

Group commit: batches that are proposed during an fsync are written together after it.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Event, TimerHandle, get_running_loop, sleep
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from odradek.cluster.raft.batches import (
    BATCH_BYTES_MAX,
    decode_entries,
    encode_entry,
    encode_records,
    leader_change_voters,
)
from odradek.cluster.raft.config import DEFAULT_CONFIG
from odradek.cluster.raft.core import RaftCore
from odradek.cluster.raft.delivery import LOG_READ_BYTES_MAX, RECORDS_PER_PART, Delivery, read_batches
from odradek.cluster.raft.errors import DifferentVoters, LostCommitted
from odradek.cluster.raft.log_view import LogView
from odradek.cluster.raft.messages import (
    NO_NODE,
    FetchReply,
    FetchSnapshotReply,
    HardState,
    Leadership,
    Message,
    Ready,
    Standing,
)
from odradek.cluster.raft.quorum_state import check_stored_epoch
from odradek.cluster.raft.roles.transitions import Role
from odradek.cluster.raft.snapshot_installer import SnapshotInstaller
from odradek.cluster.raft.snapshot_reader import read_snapshot
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.runtime.engine import LoadCancelled
from odradek.runtime.shard import ShardRecord

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable, Sequence

    from odradek.cluster.raft.config import RaftConfig
    from odradek.cluster.raft.delivery import CommittedListener, SnapshotListener
    from odradek.cluster.raft.messages import Entry, EpochEnd
    from odradek.cluster.raft.ports import RaftNetwork, RaftStorage, SnapshotWriter
    from odradek.cluster.randomness import Randomness
    from odradek.runtime.clock import Clock
    from odradek.runtime.log_port import ReplayVisitor, WatermarkCallback
    from odradek.runtime.shard import FailureHandler
    from odradek.runtime.tasks import Tasks

LeadershipListener: TypeAlias = "Callable[[Leadership], None]"


class RaftDriver:
    """One replica of the metadata log. All calls belong on the event loop.

    After a commit, the listeners of committed batches run first, then the watermark callbacks, which complete requests.
    A client that receives a response therefore finds the change in the published metadata.
    """

    def __init__(
        self,
        node_id: int,
        voters: Sequence[int],
        storage: RaftStorage,
        network: RaftNetwork,
        *,
        clock: Clock,
        rng: Randomness,
        tasks: Tasks,
        on_failure: FailureHandler,
        config: RaftConfig = DEFAULT_CONFIG,
    ) -> None:
        """Read nothing before `start`.

        `on_failure` receives the error that ends the driver; the node must stop then.
        """
        self.node_id = node_id
        self.voters = tuple(sorted(voters))
        self._storage = storage
        self._network = network
        self._clock = clock
        self._rng = rng
        self._tasks = tasks
        self._on_failure = on_failure
        self._config = config
        self._core: RaftCore | None = None
        self._delivery = Delivery(storage, tasks, f"raft-{node_id}", self._fail)
        self._installer = SnapshotInstaller(storage)
        self._own_snapshot: EpochEnd | None = None
        """A finished snapshot of this node that the log does not begin with yet."""
        self._leadership_listeners: list[LeadershipListener] = []
        self._wake_up = Event()
        self._timer: TimerHandle | None = None
        self._stopping = False
        self._failure: BaseException | None = None
        self._work: Task[None] | None = None
        self._loop: AbstractEventLoop | None = None

    # ---- start and stop ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the stored state and take part in the quorum.

        Raise BadQuorumState, OSError. Register listeners before.
        """
        self._loop = get_running_loop()
        storage = self._storage
        is_complete = await storage.open()
        # The log may have records that a killed process left in the page cache. They count only when they are durable.
        await storage.sync()
        hard_state = storage.load_hard_state() or HardState(standing=Standing.NEW)
        if not is_complete and hard_state.standing is Standing.ORDINARY:
            hard_state = replace(hard_state, standing=Standing.LOST)
            await storage.save_hard_state(hard_state)
        log = LogView(
            storage.epochs(),
            start_offset=storage.log_start_offset,
            end_offset=storage.log_end_offset,
            snapshots=storage.snapshots(),
        )
        check_stored_epoch(log.last_epoch, "the metadata log")
        self._core = RaftCore(self.node_id, self.voters, log, hard_state, rng=self._rng, config=self._config)
        self._core.start(self._clock.monotonic_ms())
        self._delivery.advance(self._core.high_watermark)
        self._work = self._tasks.spawn(self._run(), f"raft-{self.node_id}")
        self._wake_up.set()

    async def stop(self) -> None:
        """Resign if this node is the leader, complete the current writes, and end. Idempotent."""
        if self._core is None or self._stopping:
            return
        self._core.resign(self._clock.monotonic_ms())
        self._stopping = True
        self._wake_up.set()
        if self._work is not None:
            await self._work
        if self._timer is not None:
            self._timer.cancel()
        self._installer.abandon()

    def step(self, message: Message) -> None:
        """Receive a message from another node."""
        if self._failure is None and not self._stopping:
            try:
                self.core.step(message, self._clock.monotonic_ms())
            except (DifferentVoters, LostCommitted) as error:
                self._fail(error)
            self._wake_up.set()

    def suspect(self, node_id: int) -> None:
        """Node `node_id` is declared failed, or a connection to it was lost. Only a follower of that node reacts."""
        if self._core is not None and self._failure is None and not self._stopping:
            self._core.suspect(node_id, self._clock.monotonic_ms())
            self._wake_up.set()

    @property
    def core(self) -> RaftCore:
        """The core, for reading. Only this driver may change it."""
        assert self._core is not None, "start first"
        return self._core

    @property
    def leader_id(self) -> int:
        """The leader that this node knows. NO_NODE: it knows none, or has not started."""
        return NO_NODE if self._core is None else self._core.announced_leader_id

    def on_committed(self, listener: CommittedListener, prepare: CommittedListener | None = None) -> None:
        """Call `listener(batches)` with all committed batches in order, control batches included.

        A large batch comes as several ones with adjacent offsets, in one call. `prepare` receives each of them before,
        with turns of the event loop in between. An exception of a listener ends the driver.
        """
        self._delivery.committed_listeners.append(listener)
        if prepare is not None:
            self._delivery.preparing_listeners.append(prepare)

    def on_snapshot(self, listener: SnapshotListener) -> None:
        """Call `listener(snapshot)` before a snapshot replaces all delivered batches.

        It returns the visitor of the content.

        That occurs at the start, and when this node lags so far behind that the leader has only a snapshot for it.
        """
        self._delivery.snapshot_listeners.append(listener)

    def on_leadership(self, listener: LeadershipListener) -> None:
        """Call `listener(leadership)` after each change of epoch or leader, when it is durable on this node."""
        self._leadership_listeners.append(listener)

    # ---- ShardLog ---------------------------------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        return self.core.log.end_offset

    @property
    def high_watermark(self) -> int:
        return self._delivery.high_watermark

    def append(self, records: Sequence[ShardRecord], now_ms: int, guard: int = 0, *, deferred: bool = False) -> int:
        """Append one atomic batch, as ShardLog specifies. Transactions are not supported.

        Raise Refusal(NOT_LEADER_OR_FOLLOWER, RECORD_LIST_TOO_LARGE), and OSError after a failure of the log.
        """
        if self._failure is not None:
            raise OSError("the metadata log has failed") from self._failure
        core = self.core
        if core.role is not Role.LEADER or self._stopping:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        pairs = [(record.key, record.value) for record in records]
        data = encode_records(pairs, base_offset=core.log.end_offset, epoch=core.epoch, now_ms=now_ms)
        if len(data) > BATCH_BYTES_MAX:
            raise Refusal(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the metadata batch has {len(data)} bytes, above the maximum of {BATCH_BYTES_MAX}",
            )
        entry = core.propose(data, len(records))
        self._wake_up.set()
        return entry.last_offset + 1

    @property
    def snapshot_end_offset(self) -> int:
        """The end offset of the latest snapshot; 0 if there is none."""
        snapshot = self.core.log.latest_snapshot
        return 0 if snapshot is None else snapshot.end_offset

    async def replay(self, visit: ReplayVisitor, start: int = 0) -> None:
        """Visit the records from the offset `start` on. Other tasks run after each RECORDS_PER_PART of them.

        If the latest snapshot ends above `start`, visit all its records and those of the log after it. The records of
        the snapshot get the last offset that it covers. Raise LoadCancelled if this node does not lead any more: its
        log may have been truncated during the read.
        """
        epoch = self.core.epoch
        try:
            await self._replay(visit, start)
        except (OSError, Refusal, Malformed):
            if self.core.role is Role.LEADER and self.core.epoch == epoch:
                raise
            raise LoadCancelled(f"raft-{self.node_id}: this node does not lead epoch {epoch} any more") from None

    async def _replay(self, visit: ReplayVisitor, start: int) -> None:
        storage = self._storage
        offset, visited = start, 0
        snapshot = self.core.log.latest_snapshot
        if snapshot is not None and snapshot.end_offset > start:
            offset = snapshot.end_offset
            async for batches in read_snapshot(storage, snapshot):
                for batch in batches:
                    for key, value in batch.records:
                        visit(offset - 1, ShardRecord(key, value), snapshot.epoch)
                        visited += 1
                        if visited % RECORDS_PER_PART == 0:
                            await sleep(0)
        while offset < storage.log_end_offset:
            for batch in await read_batches(storage, offset, storage.log_end_offset):
                for at, (key, value) in enumerate(batch.records, batch.base_offset):
                    if at < start:
                        continue
                    visit(at, ShardRecord(key, value), batch.epoch)
                    visited += 1
                    if visited % RECORDS_PER_PART == 0:
                        await sleep(0)
                offset = batch.last_offset + 1

    def subscribe(self, callback: WatermarkCallback) -> None:
        self._delivery.watermark_callbacks.append(callback)

    def unsubscribe(self, callback: WatermarkCallback) -> None:
        if callback in self._delivery.watermark_callbacks:
            self._delivery.watermark_callbacks.remove(callback)

    # ---- snapshots of this node -------------------------------------------------------------------------------------

    def begin_snapshot(self, snapshot: EpochEnd) -> SnapshotWriter:
        """Return the writer of a snapshot of all delivered batches below its end offset. Raise OSError."""
        return self._storage.begin_snapshot(snapshot)

    def snapshot_made(self, snapshot: EpochEnd) -> None:
        """Note that a snapshot of this node is finished.

        The part of the log that it replaces is deleted when no write is pending.
        """
        self._own_snapshot = snapshot
        self._wake_up.set()

    # ---- work -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                while (ready := self.core.take_ready()) is not None:
                    await self._do(ready)
                    self.core.advance(self._clock.monotonic_ms())
                await self._adopt_snapshot()
                if self._stopping or self._failure is not None:
                    return
                self._arm()
                await self._wake_up.wait()
                self._wake_up.clear()
        except Exception as error:  # noqa: BLE001  the disk has failed, or this is a bug: the replica must stop
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End the leadership, so that pending requests fail, and report the failure, so that the node stops."""
        self._failure = error
        for listener in tuple(self._leadership_listeners):
            listener(Leadership(self.core.epoch, NO_NODE, is_leader=False))
        self._on_failure(f"raft-{self.node_id}", error)

    async def _do(self, ready: Ready) -> None:
        """Carry out `ready` in the order that it specifies. Commits are published first, before the next fsync."""
        batches = [encode_entry(entry, self._clock.wall_ms()) for entry in ready.entries]
        if ready.snapshot_part is not None:
            if ready.hard_state is not None:
                await self._storage.save_hard_state(ready.hard_state)
            await self._installer.install(ready.snapshot_part)
            if ready.snapshot_part.last:
                self._delivery.log_replaced()
        for entry in ready.entries:
            self._check_voters(entry)
        self._delivery.written(ready.truncate_to, ready.entries, batches)
        if ready.high_watermark is not None:
            self._storage.set_high_watermark(ready.high_watermark)
            self._delivery.advance(ready.high_watermark)
        if ready.hard_state is not None and ready.snapshot_part is None:
            await self._storage.save_hard_state(ready.hard_state)
        if ready.truncate_to is not None:
            await self._storage.truncate_to(ready.truncate_to)
        await self._storage.write(batches)
        for message in ready.early_messages:
            await self._send(message)
        if ready.must_sync:
            await self._storage.sync()
        for message in ready.messages:
            await self._send(message)
        if ready.leadership is not None:
            for listener in tuple(self._leadership_listeners):
                listener(ready.leadership)

    async def _send(self, message: Message) -> None:
        if isinstance(message, FetchReply) and message.read_end > message.fetch_offset:
            end = min(message.read_end, self._storage.log_end_offset)
            data = await self._storage.read(message.fetch_offset, end, LOG_READ_BYTES_MAX)
            message = replace(message, entries=tuple(decode_entries(data)))
        if isinstance(message, FetchSnapshotReply) and message.error is ErrorCode.NONE:
            message = await self._with_bytes(message)
        self._network.send(message)

    def _check_voters(self, entry: Entry) -> None:
        """Raise DifferentVoters if the leader counts other votes than this node.

        Two leaders could be elected otherwise.
        """
        if entry.epoch != self.core.epoch or not isinstance(entry.data, bytes):
            return
        voters = leader_change_voters(entry.data)
        if voters is not None and voters != self.voters:
            raise DifferentVoters(
                f"leader {self.core.leader_id} has the voters {list(voters)}, but this node has {list(self.voters)}:"
                " set controller.quorum.voters to the same value on every node"
            )

    async def _with_bytes(self, reply: FetchSnapshotReply) -> FetchSnapshotReply:
        limit = min(reply.max_bytes, LOG_READ_BYTES_MAX)
        found = await self._storage.read_snapshot(reply.snapshot, reply.position, limit)
        if found is None:
            return replace(reply, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        if not found.data:
            return replace(reply, error=ErrorCode.POSITION_OUT_OF_RANGE)
        return replace(reply, size=found.size, data=found.data)

    async def _adopt_snapshot(self) -> None:
        """Let the log begin with the finished snapshot of this node when all records below its end are durable."""
        snapshot = self._own_snapshot
        log = self.core.log
        if snapshot is None or snapshot.end_offset > log.stable_end:
            return
        self._own_snapshot = None
        newest = log.latest_snapshot
        if newest is None or snapshot.end_offset > newest.end_offset:
            self.core.add_snapshot(snapshot)
            if log.start_offset > 0:
                await self._storage.forget_before(log.snapshots[0])

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self.core.next_deadline_ms
        if deadline_ms is not None:
            assert self._loop is not None
            delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
            self._timer = self._loop.call_later(delay_ms / 1_000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._failure is None and not self._stopping:
            self.core.tick(self._clock.monotonic_ms())
            self._wake_up.set()
