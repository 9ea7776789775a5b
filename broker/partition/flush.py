"""Acknowledge appended records when they are flushed as flush.messages of the topic requires.

Without flush.messages, the append suffices. With flush.messages=N, fewer than N acknowledged records are unflushed at
any time: N=1 flushes before each acknowledgment.
"""

from asyncio import sleep
from collections.abc import Callable
from typing import Final

from odradek.runtime.tasks import Spawn
from odradek.storage.disk.port import ResourcesExhausted
from odradek.storage.log.log import PartitionLog

RESOURCE_RETRY_S: Final = 0.1
"""Seconds between two attempts of a flush while no file descriptor or memory is left. The producers wait meanwhile."""
Advance = Callable[[int], None]
"""Called with an offset: all offsets below it are acknowledgeable. The offsets of successive calls never decrease."""


def _acknowledge_nothing(_offset: int) -> None:
    """Acknowledge nothing, because the leader term has ended."""


class GroupFlush:
    """Flush one log for one leader term, one flush at a time.

    The next flush covers all records that are appended during a flush. So all producers of a partition share the cost
    of a flush, and each waits for at most two flushes.
    """

    __slots__ = ("_acknowledgeable", "_closed", "_failed", "_log", "_messages", "_name", "_running", "_spawn")

    def __init__(
        self,
        log: PartitionLog,
        *,
        name: str,
        messages: int,
        spawn: Spawn,
        acknowledgeable: Advance,
        failed: Callable[[OSError], None],
    ) -> None:
        """`messages` is flush.messages of the topic. `failed` receives the OSError of a flush that failed."""
        self._log = log
        self._name = name
        self._messages = messages
        self._spawn = spawn
        self._acknowledgeable = acknowledgeable
        self._failed = failed
        self._running = False
        self._closed = False

    def appended(self) -> None:
        """Acknowledge the log end: immediately, or after a flush if flush.messages or more records are unflushed."""
        log = self._log
        end = log.log_end_offset
        if end < self._messages or end - log.flushed_offset < self._messages:
            self._acknowledgeable(end)
        elif not self._running:
            self._running = True
            self._spawn(self._flush(), f"flush {self._name}")

    def set_messages(self, messages: int) -> None:
        """Apply a changed flush.messages of the topic."""
        self._messages = messages
        if not self._closed:
            self.appended()

    def close(self) -> None:
        """End the leader term: a running flush completes and acknowledges nothing."""
        self._closed = True
        self._acknowledgeable = _acknowledge_nothing  # breaks the cycle with the leader term, which has this object

    def _is_closed(self) -> bool:
        return self._closed

    async def _flush(self) -> None:
        log = self._log
        try:
            while not self._closed:
                before = log.flushed_offset
                try:
                    await log.flush()
                except ResourcesExhausted:
                    await sleep(RESOURCE_RETRY_S)
                    continue
                if self._is_closed():
                    return
                flushed = log.flushed_offset
                end = log.log_end_offset
                # Without progress, this loop would not end.
                assert flushed > before, f"{self._name}: the flushed offset is still {flushed} after a flush"
                self._acknowledgeable(end if end - flushed < self._messages else flushed)
                # The callback may have appended records. `appended` started no flush for them, because this one still
                # runs.
                if log.log_end_offset - log.flushed_offset < self._messages:
                    return
        except OSError as error:
            self._failed(error)
        finally:
            self._running = False
