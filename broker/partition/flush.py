"""How far the high watermark of a led partition may go.

Two questions, asked one after the other about everything that was appended:

1. `GroupFlush`: is it safe enough *on this disk* to be acknowledged? Without `flush.messages` the append is enough.
   With `flush.messages=N` fewer than N acknowledged messages are ever unflushed, so N=1 flushes before every
   acknowledgement.
2. `CommitGate`: is it safe enough *in the cluster*? For one replica the answer to the first question is enough
   (`LocalCommitGate`). Replication and the simulator bring gates of their own.
"""

from asyncio import Task
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

Advance = Callable[[int], None]
"""Called on the loop with an offset below which everything has passed; offsets may repeat, and never go back."""
Spawn = Callable[[Coroutine[Any, Any, None], str], Task[None]]


class CommitGate(Protocol):
    """One led partition, for the time of one leadership."""

    def acknowledgeable(self, offset: int) -> None:
        """This broker has everything below `offset`, as safely as `flush.messages` asks.

        Called after each append. May call `advance` (see CommitGateFactory) before it returns, later, or both.
        """

    def close(self) -> None:
        """The leadership has ended; `advance` is not called any more."""


CommitGateFactory = Callable[[str, int, Advance], CommitGate]
"""make(topic, partition, advance): `advance(offset)` moves the partition's high watermark."""


class LocalCommitGate:
    """One replica: what this broker has is committed."""

    __slots__ = ("_advance",)

    def __init__(self, topic: str, partition: int, advance: Advance) -> None:
        self._advance: Advance | None = advance

    def acknowledgeable(self, offset: int) -> None:
        if self._advance is not None:
            self._advance(offset)

    def close(self) -> None:
        self._advance = None


class FlushableLog(Protocol):
    """What `GroupFlush` needs of a log."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int:
        """Everything below is on stable storage."""

    async def flush(self) -> None:
        """Bring everything appended so far to stable storage. Raises OSError."""


class GroupFlush:
    """One flush at a time: whatever is appended while it runs is covered by the next one.

    So the cost of a flush is shared by all producers of a partition, and none waits for more than two.
    """

    __slots__ = ("_acknowledgeable", "_closed", "_failed", "_log", "_messages", "_name", "_running", "_spawn")

    def __init__(
        self,
        log: FlushableLog,
        *,
        name: str,
        messages: int,
        spawn: Spawn,
        acknowledgeable: Advance,
        failed: Callable[[OSError], None],
    ) -> None:
        """`messages` is flush.messages of the topic; `failed` is told of a flush that the disk refused."""
        self._log = log
        self._name = name
        self._messages = messages
        self._spawn = spawn
        self._acknowledgeable = acknowledgeable
        self._failed = failed
        self._running = False
        self._closed = False

    def appended(self) -> None:
        """The log has grown: acknowledge it at once, or as soon as enough of it is flushed."""
        log = self._log
        end = log.log_end_offset
        if end < self._messages or end - log.flushed_offset < self._messages:
            self._acknowledgeable(end)
        elif not self._running:
            self._running = True
            self._spawn(self._flush(), f"flush {self._name}")

    def set_messages(self, messages: int) -> None:
        """flush.messages of the topic has changed."""
        self._messages = messages
        if not self._closed:
            self.appended()

    def close(self) -> None:
        """The leadership has ended: a flush that runs comes to its end and tells nobody."""
        self._closed = True

    def _is_closed(self) -> bool:
        return self._closed

    async def _flush(self) -> None:
        log = self._log
        try:
            while not self._closed:
                before = log.flushed_offset
                await log.flush()
                if self._is_closed():
                    return
                flushed = log.flushed_offset
                end = log.log_end_offset
                assert flushed > before, f"{self._name}: flushed, and still at {flushed}"  # else this spins for ever
                self._acknowledgeable(end if end - flushed < self._messages else flushed)
                # Who was told may have appended on the spot, and was given no flush since this one still runs.
                if log.log_end_offset - log.flushed_offset < self._messages:
                    return
        except OSError as error:
            self._failed(error)
        finally:
            self._running = False
