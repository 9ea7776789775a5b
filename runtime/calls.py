"""Commands of an engine between their arrival and their reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.protocol.errors import Refusal

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, TimerHandle
    from collections.abc import Callable, Hashable

    from odradek.runtime.shard import Decision, Effect


class Call:
    """One command on its way. `future` is None for a command without a reply (timers, effects)."""

    __slots__ = ("command", "deadline_s", "future", "guard", "handle", "timer", "wait_s_max")

    def __init__(
        self,
        command: Any,
        future: Future[Any] | None,
        deadline_s: float,
        wait_s_max: float,
        guard: int = 0,
        timer: Hashable = None,
    ) -> None:
        """Take in a command. `deadline_s` is in loop time; `wait_s_max` bounds its time in a queue; `guard` goes to the log with its
        records; `timer` is the key of the timer that it comes from.
        """
        self.command = command
        self.timer = timer
        self.guard = guard
        self.future = future
        self.deadline_s = deadline_s
        self.wait_s_max = wait_s_max
        self.handle: TimerHandle | None = None

    @property
    def done(self) -> bool:
        return self.future is not None and self.future.done()

    def arm(self, loop: AbstractEventLoop, when_s: float, expired: Callable[[Call], None]) -> None:
        """Call `expired(self)` at this loop time, in place of an earlier deadline."""
        self.disarm()
        self.handle = loop.call_at(when_s, expired, self)

    def disarm(self) -> None:
        """Cancel the deadline."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None

    def reply(self, reply: Any) -> None:
        """Complete the future with the reply, or with the refusal that it is."""
        self.disarm()
        future = self.future
        if future is None or future.done():
            return
        if isinstance(reply, Refusal):
            future.set_exception(reply)
        else:
            future.set_result(reply)


class Parked:
    """A reply and effects that wait for the high watermark to reach `end`."""

    __slots__ = ("call", "effects", "end", "keys", "reply")

    def __init__(self, end: int, call: Call | None, reply: Any, decision: Decision[Any] | None) -> None:
        self.end = end
        self.call = call
        self.reply = reply
        self.effects: tuple[Effect, ...] = () if decision is None else decision.effects
        self.keys: tuple[Hashable, ...] = () if decision is None else decision.keys
