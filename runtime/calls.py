"""Commands that an engine has accepted and not replied to yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.protocol.errors import Refusal

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, TimerHandle
    from collections.abc import Callable, Hashable

    from odradek.runtime.shard import Decision, Effect


class Call:
    """One command until its reply. `future` is None for a command without a reply (from timers and effects)."""

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
        """Accept a command.

        `deadline_s` is the loop time until which its records must be committed. `wait_s_max` bounds its time in a
        queue. `guard` is passed to `ShardLog.append`. `timer` is the key of the timer that has submitted the command,
        or None.
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
        """True if the reply was given, or the caller has cancelled the future."""
        return self.future is not None and self.future.done()

    def set_deadline(self, loop: AbstractEventLoop, when_s: float, expired: Callable[[Call], None]) -> None:
        """Call `expired(self)` at loop time `when_s`. This replaces an earlier deadline."""
        self.cancel_deadline()
        self.handle = loop.call_at(when_s, expired, self)

    def cancel_deadline(self) -> None:
        """Cancel the deadline."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None

    def reply(self, reply: Any) -> None:
        """Complete the future with the reply. A `Refusal` becomes its exception."""
        self.cancel_deadline()
        future = self.future
        if future is None or future.done():
            return
        if isinstance(reply, Refusal):
            future.set_exception(reply)
        else:
            future.set_result(reply)


class Parked:
    """Reply, effects and keys that wait until the high watermark reaches `end`."""

    __slots__ = ("call", "effects", "end", "keys", "reply")

    def __init__(self, end: int, call: Call | None, reply: Any, decision: Decision[Any] | None) -> None:
        self.end = end
        self.call = call
        self.reply = reply
        self.effects: tuple[Effect, ...] = () if decision is None else decision.effects
        self.keys: tuple[Hashable, ...] = () if decision is None else decision.keys
