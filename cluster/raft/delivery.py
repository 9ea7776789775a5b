"""Deliver committed batches to listeners in the order of the log: from memory, from the log, or as a snapshot."""

from __future__ import annotations

from asyncio import sleep
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from odradek.cluster.raft.batches import LogBatch, decode_batches, decode_parts
from odradek.cluster.raft.snapshot_reader import read_snapshot
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import Malformed, Refusal
from odradek.runtime.rest import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from odradek.cluster.raft.messages import Entry, EpochEnd
    from odradek.cluster.raft.ports import RaftStorage
    from odradek.runtime.log_port import WatermarkCallback
    from odradek.runtime.tasks import Tasks

LOG_READ_BYTES_MAX: Final = 1024 * 1024
"""Maximum bytes of one read of the log: for a replay, and for one fetch response."""
TURN_BYTES_MAX: Final = 32 * 1024
"""Maximum bytes of batches that are delivered from memory in one turn of the event loop: about 400 records, which take
5 ms. A larger batch is prepared in parts of RECORDS_PER_PART."""
TURN_RECORDS_MAX: Final = 256
"""Maximum records of batches that are delivered in one turn of the event loop. One slice of a fail-over has 200, and
takes 5 ms with the changes of roles that follow. TURN_BYTES_MAX permits 700 records of this kind. A larger batch is
prepared in parts of RECORDS_PER_PART."""
RECORDS_PER_PART: Final = 100
"""Records of a large batch that are decoded and prepared in one turn of the event loop (about 1 ms)."""
REST_FACTOR: Final = 2
"""Length of the rest after a part of a large batch, as a multiple of the part. A large batch creates a topic with many
partitions. The changes of a fail-over are in small batches, which have no rests and end those of a large batch."""
REST_S_MAX: Final = 0.01
"""Maximum seconds of one rest. A part takes 1 ms, and longer only if other processes delay it."""


class SnapshotVisitor(Protocol):
    """Receiver of the content of one snapshot. The content is complete after `done`."""

    def take(self, batches: Sequence[LogBatch]) -> None:
        """Receive the next batches."""

    def done(self) -> None:
        """Note that all batches of the snapshot have been received."""


CommittedListener: TypeAlias = "Callable[[Sequence[LogBatch]], None]"
SnapshotListener: TypeAlias = "Callable[[EpochEnd], SnapshotVisitor]"


@frozen_dataclass(frozen=True, slots=True)
class _Written:
    """A batch of the log that has not been delivered yet."""

    base_offset: int
    last_offset: int
    data: bytes

    @property
    def count(self) -> int:
        """Number of records."""
        return self.last_offset - self.base_offset + 1

    @property
    def is_large(self) -> bool:
        """True if the batch alone exceeds the work of one turn of the event loop."""
        return len(self.data) > TURN_BYTES_MAX or self.count > TURN_RECORDS_MAX


class Delivery:
    """Call the listeners of committed batches first, then the watermark callbacks, which complete requests."""

    def __init__(
        self, storage: RaftStorage, tasks: Tasks, name: str, on_failure: Callable[[BaseException], None]
    ) -> None:
        """`on_failure` receives the error if committed batches cannot be read, or a listener raises."""
        self.high_watermark = 0
        """All batches below this offset have been delivered."""
        self.watermark_callbacks: list[WatermarkCallback] = []
        self.committed_listeners: list[CommittedListener] = []
        self.preparing_listeners: list[CommittedListener] = []
        """Listeners of the parts of a large batch. `committed_listeners` receive all parts of it later, in one call."""
        self.snapshot_listeners: list[SnapshotListener] = []
        self._storage = storage
        self._tasks = tasks
        self._name = name
        self._on_failure = on_failure
        self._committed = 0
        self._delivered = 0
        self._undelivered: deque[_Written] = deque()
        self._delivering = False

    def written(self, truncate_to: int | None, entries: Sequence[Entry], batches: Sequence[bytes]) -> None:
        """Keep batches that are written after a truncation in memory, so that their commit needs no read."""
        while truncate_to is not None and self._undelivered and self._undelivered[-1].last_offset >= truncate_to:
            self._undelivered.pop()
        for entry, data in zip(entries, batches, strict=True):
            self._undelivered.append(_Written(entry.base_offset, entry.last_offset, data))

    def log_replaced(self) -> None:
        """Drop all batches in memory: a snapshot of the leader has replaced the log.

        Those behind the previous high watermark may differ from the leader's, although their offsets are committed now.
        """
        self._undelivered.clear()

    def advance(self, committed: int) -> None:
        """Note that all offsets below `committed` are committed."""
        if committed == self._committed:
            return
        self._committed = committed
        if self._delivering:
            return
        self._deliver_from_memory()
        if self._delivered < committed:
            # The batches were on disk at the start, a snapshot has replaced them, or they are large. They are delivered
            # before later batches.
            self._delivering = True
            self._tasks.spawn(self._deliver_remaining(), f"{self._name}-replay")
        else:
            self._announce()

    def _announce(self) -> None:
        self.high_watermark = self._committed
        for callback in tuple(self.watermark_callbacks):
            callback(self.high_watermark)

    def _deliver_from_memory(self) -> None:
        """Deliver the next committed batches, up to TURN_BYTES_MAX and TURN_RECORDS_MAX."""
        batches: list[LogBatch] = []
        reached, size, count = self._delivered, 0, 0
        while self._undelivered and self._undelivered[0].last_offset < self._committed:
            written = self._undelivered[0]
            size += len(written.data)
            count += written.count
            if written.base_offset > reached or size > TURN_BYTES_MAX or count > TURN_RECORDS_MAX:
                break  # the batches before it come from the log, or this turn has delivered enough
            self._undelivered.popleft()
            batches += decode_batches(written.data)
            reached = written.last_offset + 1
        self._deliver(batches)

    async def _deliver_large(self) -> None:
        """Prepare the next batch in parts, then deliver it. It is committed, so no truncation removes it."""
        parts = []
        pace = Pace(REST_FACTOR, REST_S_MAX)
        for part in decode_parts(self._undelivered.popleft().data, RECORDS_PER_PART):
            for prepare in tuple(self.preparing_listeners):
                prepare((part,))
            parts.append(part)
            if self._undelivered and self._undelivered[0].last_offset < self._committed:
                pace.resume()  # the batches behind it may be urgent
            await pace.rest()
        self._deliver(parts)

    async def _deliver_remaining(self) -> None:
        try:
            while self._delivered < self._committed:
                snapshots = self._storage.snapshots()
                if self._undelivered and self._undelivered[0].base_offset <= self._delivered:
                    if self._undelivered[0].is_large:
                        await self._deliver_large()
                    else:
                        self._deliver_from_memory()
                    await sleep(0)
                elif snapshots and (self._delivered == 0 or self._delivered < self._storage.log_start_offset):
                    await self._deliver_snapshot(snapshots[-1])
                else:
                    await self._deliver_from_log()
            self._delivering = False
            self._announce()
        except Exception as error:  # noqa: BLE001  the metadata is unreadable or unknown: the node must stop
            self._on_failure(error)

    async def _deliver_from_log(self) -> None:
        start = self._delivered
        try:
            data = await self._storage.read(start, self._committed, LOG_READ_BYTES_MAX)
        except (OSError, Refusal):
            if start >= self._storage.log_start_offset:
                raise
            return  # a snapshot has replaced the log during the read
        await self._deliver_in_turns(decode_parts(data, RECORDS_PER_PART))
        if self._delivered == start and start >= self._storage.log_start_offset:
            raise _ends(start, self._committed)

    async def _deliver_in_turns(self, parts: Iterable[LogBatch]) -> None:
        """Deliver batches in turns of about TURN_BYTES_MAX or TURN_RECORDS_MAX. A large batch is prepared in parts."""
        complete: list[LogBatch] = []
        large: list[LogBatch] = []
        size = count = 0
        for part in parts:
            size += part.size
            if part.size:
                complete += [*large, part]
                count += sum(len(each.records) for each in (*large, part))
                large = []
                if size < TURN_BYTES_MAX and count < TURN_RECORDS_MAX:
                    continue
            self._deliver(complete)
            complete, size, count = [], 0, 0
            if not part.size:
                large.append(part)
                for prepare in tuple(self.preparing_listeners):
                    prepare((part,))
            await sleep(0)
        self._deliver(complete)

    async def _deliver_snapshot(self, snapshot: EpochEnd) -> None:
        visitors = [listener(snapshot) for listener in tuple(self.snapshot_listeners)]
        try:
            async for batches in read_snapshot(self._storage, snapshot):
                for visitor in visitors:
                    visitor.take(batches)
        except (OSError, Malformed):
            if snapshot in self._storage.snapshots():
                raise
            return  # a snapshot of the leader has replaced it during the read, and is delivered instead
        for visitor in visitors:
            visitor.done()
        self._delivered = snapshot.end_offset
        while self._undelivered and self._undelivered[0].last_offset < self._delivered:
            self._undelivered.popleft()

    def _deliver(self, batches: Sequence[LogBatch]) -> None:
        new = [batch for batch in batches if batch.base_offset >= self._delivered]
        if new:
            self._delivered = new[-1].last_offset + 1
            for listener in tuple(self.committed_listeners):
                listener(new)


async def read_batches(storage: RaftStorage, offset: int, end: int) -> list[LogBatch]:
    """Return some batches from `offset` on, up to `end`. Raise OSError, also if there are none."""
    batches = list(decode_batches(await storage.read(offset, end, LOG_READ_BYTES_MAX)))
    if not batches:
        raise _ends(offset, end)
    return batches


def _ends(offset: int, end: int) -> OSError:
    return OSError(f"the metadata log ends at offset {offset}, not at {end}")
