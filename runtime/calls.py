"""What an engine keeps of a command between its arrival and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.errors import Refusal

if TYPE_CHECKING:
    from asyncio import Future, TimerHandle
    from collections.abc import Hashable

    from runtime.shard import Decision, Effect


class Call:
    """One command on its way. `future` is None when nobody waits for the answer (timers, effects)."""

    __slots__ = ("command", "deadline_s", "future", "handle", "wait_s_max")

    def __init__(self, command: Any, future: Future[Any] | None, deadline_s: float, wait_s_max: float) -> None:
        """`deadline_s` is loop time; `wait_s_max` is how long it may wait in a queue."""
        self.command = command
        self.future = future
        self.deadline_s = deadline_s
        self.wait_s_max = wait_s_max
        self.handle: TimerHandle | None = None

    @property
    def done(self) -> bool:
        return self.future is not None and self.future.done()

    def disarm(self) -> None:
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None

    def answer(self, reply: Any) -> None:
        self.disarm()
        future = self.future
        if future is None or future.done():
            return
        if isinstance(reply, Refusal):
            future.set_exception(reply)
        else:
            future.set_result(reply)


class Parked:
    """What becomes true when the high watermark reaches `end`."""

    __slots__ = ("call", "effects", "end", "keys", "reply")

    def __init__(self, end: int, call: Call | None, reply: Any, decision: Decision[Any] | None) -> None:
        self.end = end
        self.call = call
        self.reply = reply
        self.effects: tuple[Effect, ...] = () if decision is None else decision.effects
        self.keys: tuple[Hashable, ...] = () if decision is None else decision.keys
