"""Runs a raft core: takes its Ready, persists, sends, advances. Implements runtime's ShardLog for the state machine on top.

Group commit: while one fsync runs, whatever is proposed gathers in the core and goes out with the next.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Event, TimerHandle, get_running_loop
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from cluster.raft.batches import BATCH_BYTES_MAX, LogBatch, decode_batches, decode_entries, encode_entry, encode_records
from cluster.raft.core import DEFAULT_CONFIG, RaftCore
from cluster.raft.election import RaftConfig, Role
from cluster.raft.log_view import LogView
from cluster.raft.messages import NOBODY, FetchReply, HardState, Leadership, Message, Ready, Standing
from protocol.errors import ErrorCode, Refusal
from runtime.shard import ShardRecord

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable, Sequence

    from cluster.raft.core import Randomness
    from cluster.raft.ports import RaftNetwork, RaftStorage
    from runtime.clock import Clock
    from runtime.log_port import ReplayVisitor, WatermarkCallback
    from runtime.shard import FailureHandler
    from runtime.tasks import Tasks

READ_BYTES_MAX = 1024 * 1024
"""Read from the log at a time: at load, and for one answer to a follower."""

CommittedListener: TypeAlias = "Callable[[Sequence[LogBatch]], None]"
LeadershipListener: TypeAlias = "Callable[[Leadership], None]"


@dataclass(frozen=True, slots=True)
class _Written:
    """A batch that is in the log but not delivered to the listeners of committed batches yet."""

    base_offset: int
    last_offset: int
    data: bytes


class RaftDriver:
    """One replica of the metadata log. All calls belong on the event loop.

    Order of events at a commit: listeners of committed batches first, then watermark callbacks (which answer requests), so
    that whoever hears of a change by its answer finds it in the published metadata.
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
        """Reads nothing yet. `on_failure` hears of the one error that ends the driver: the node has to stop then."""
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
        self._committed = 0
        self._high_watermark = 0  # follows when everything below has been delivered
        self._delivered = 0
        self._undelivered: deque[_Written] = deque()
        self._delivering = False
        self._watermark_callbacks: list[WatermarkCallback] = []
        self._committed_listeners: list[CommittedListener] = []
        self._leadership_listeners: list[LeadershipListener] = []
        self._wake_up = Event()
        self._timer: TimerHandle | None = None
        self._stopping = False
        self._failure: BaseException | None = None
        self._work: Task[None] | None = None
        self._loop: AbstractEventLoop | None = None

    # ---- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the stored state and take part. Raises BadQuorumState, OSError. Subscribe before."""
        self._loop = get_running_loop()
        storage = self._storage
        # What a killed process left in the page cache was read back, but counts towards a majority only when it is durable.
        await storage.sync()
        hard_state = storage.load_hard_state() or HardState(standing=Standing.NEW)
        log = LogView(storage.epochs(), start_offset=storage.log_start_offset, end_offset=storage.log_end_offset)
        self._delivered = storage.log_start_offset
        self._core = RaftCore(self.node_id, self.voters, log, hard_state, rng=self._rng, config=self._config)
        self._core.start(self._clock.monotonic_ms())
        self._work = self._tasks.spawn(self._run(), f"raft-{self.node_id}")
        self._wake_up.set()

    async def stop(self) -> None:
        """Hand a leadership over, finish what is being written, and end. Idempotent."""
        if self._core is None or self._stopping:
            return
        self._core.resign(self._clock.monotonic_ms())
        self._stopping = True
        self._wake_up.set()
        if self._work is not None:
            await self._work
        if self._timer is not None:
            self._timer.cancel()

    def step(self, message: Message) -> None:
        """A message from another node has arrived."""
        if self._failure is None and not self._stopping:
            self.core.step(message, self._clock.monotonic_ms())
            self._wake_up.set()

    def suspect(self, node_id: int) -> None:
        """Node `node_id` is held dead, or a connection to it was lost. Nothing happens unless this node follows it."""
        if self._core is not None and self._failure is None and not self._stopping:
            self._core.suspect(node_id, self._clock.monotonic_ms())
            self._wake_up.set()

    @property
    def core(self) -> RaftCore:
        """For reading; its owner is this driver."""
        assert self._core is not None, "start first"
        return self._core

    @property
    def leader_id(self) -> int:
        """Who leads, as far as this node knows; NOBODY also before the start."""
        return NOBODY if self._core is None else self._core.announced_leader_id

    def on_committed(self, listener: CommittedListener) -> None:
        """`listener(batches)` with every batch of the log, control batches included, in order, once it is committed.

        Whatever is committed at the same moment comes in one call. What a listener raises ends the driver.
        """
        self._committed_listeners.append(listener)

    def on_leadership(self, listener: LeadershipListener) -> None:
        """`listener(leadership)` whenever who leads has changed, as soon as that is durable here."""
        self._leadership_listeners.append(listener)

    # ---- ShardLog ---------------------------------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        return self.core.log.end_offset

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    def append(self, records: Sequence[ShardRecord], now_ms: int) -> int:
        """One atomic batch, as the port says. Refusals: NOT_LEADER_OR_FOLLOWER, RECORD_LIST_TOO_LARGE."""
        if self._failure is not None:
            raise OSError("the metadata log has failed") from self._failure
        core = self.core
        if core.role is not Role.LEADER or self._stopping:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        pairs = [(record.key, record.value) for record in records]
        data = encode_records(pairs, base_offset=core.log.end_offset, epoch=core.epoch, now_ms=now_ms)
        if len(data) > BATCH_BYTES_MAX:
            raise Refusal(ErrorCode.RECORD_LIST_TOO_LARGE, f"{len(data)} bytes of metadata in one batch")
        entry = core.propose(data, len(records))
        self._wake_up.set()
        return entry.last_offset + 1

    async def replay(self, visit: ReplayVisitor) -> None:
        offset = self._storage.log_start_offset
        while offset < self._storage.log_end_offset:
            for batch in await self._read(offset, self._storage.log_end_offset):
                for index, (key, value) in enumerate(batch.records):
                    visit(batch.base_offset + index, ShardRecord(key, value), batch.epoch)
                offset = batch.last_offset + 1

    def subscribe(self, callback: WatermarkCallback) -> None:
        self._watermark_callbacks.append(callback)

    def unsubscribe(self, callback: WatermarkCallback) -> None:
        if callback in self._watermark_callbacks:
            self._watermark_callbacks.remove(callback)

    # ---- work -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                while (ready := self.core.take_ready()) is not None:
                    await self._do(ready)
                    self.core.advance(self._clock.monotonic_ms())
                if self._stopping:
                    return
                self._arm()
                await self._wake_up.wait()
                self._wake_up.clear()
        except Exception as error:  # noqa: BLE001  a disk that fails, or a bug: the replica must not go on either way
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Whoever waits for a commit is told that this replica leads nothing any more; the owner stops the node."""
        self._failure = error
        for listener in tuple(self._leadership_listeners):
            listener(Leadership(self.core.epoch, NOBODY, is_leader=False))
        self._on_failure(f"raft-{self.node_id}", error)

    async def _do(self, ready: Ready) -> None:
        """In the order that `Ready` asks for. News of commits go first: they must not wait for the next fsync."""
        batches = [encode_entry(entry, self._clock.wall_ms()) for entry in ready.entries]
        while ready.truncate_to is not None and self._undelivered:
            if self._undelivered[-1].last_offset < ready.truncate_to:
                break
            self._undelivered.pop()
        for entry, data in zip(ready.entries, batches, strict=True):
            self._undelivered.append(_Written(entry.base_offset, entry.last_offset, data))
        if ready.high_watermark is not None:
            self._advance_high_watermark(ready.high_watermark)
        if ready.hard_state is not None:
            await self._storage.save_hard_state(ready.hard_state)
        if ready.must_sync:
            self._storage.write(ready.truncate_to, batches)
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
            data = await self._storage.read(message.fetch_offset, end, READ_BYTES_MAX)
            message = replace(message, entries=tuple(decode_entries(data)))
        self._network.send(message)

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

    # ---- commit -----------------------------------------------------------------------------------------------------

    def _advance_high_watermark(self, committed: int) -> None:
        self._committed = committed
        self._storage.set_high_watermark(committed)
        if self._delivering:
            return
        self._deliver_from_memory()
        if self._delivered < committed:
            # Found on disk at start: read it aside, in order, before anything newer.
            self._delivering = True
            self._tasks.spawn(self._deliver_from_log(), f"raft-{self.node_id}-replay")
        else:
            self._announce()

    def _announce(self) -> None:
        self._high_watermark = self._committed
        for callback in tuple(self._watermark_callbacks):
            callback(self._high_watermark)

    def _deliver_from_memory(self) -> None:
        batches: list[LogBatch] = []
        reached = self._delivered
        while self._undelivered and self._undelivered[0].last_offset < self._committed:
            if self._undelivered[0].base_offset > reached:
                break  # what lies before it has to come from the log first
            written = self._undelivered.popleft()
            batches += decode_batches(written.data)
            reached = written.last_offset + 1
        self._deliver(batches)

    async def _deliver_from_log(self) -> None:
        try:
            while self._delivered < self._committed:
                if self._undelivered and self._undelivered[0].base_offset <= self._delivered:
                    self._deliver_from_memory()
                else:
                    self._deliver(await self._read(self._delivered, self._committed))
            self._delivering = False
            self._announce()
        except Exception as error:  # noqa: BLE001  unreadable or not understood metadata: the node has to stop
            self._fail(error)

    async def _read(self, offset: int, end: int) -> list[LogBatch]:
        batches = list(decode_batches(await self._storage.read(offset, end, READ_BYTES_MAX)))
        if not batches:
            raise OSError(f"the metadata log ends at offset {offset}, not at {end}")
        return batches

    def _deliver(self, batches: Sequence[LogBatch]) -> None:
        new = [batch for batch in batches if batch.base_offset >= self._delivered]
        if new:
            self._delivered = new[-1].last_offset + 1
            for listener in tuple(self._committed_listeners):
                listener(new)
