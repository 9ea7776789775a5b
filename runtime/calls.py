"""What an engine keeps of a command between its arrival and its answer."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from odradek.protocol.errors import Refusal

if TYPE_CHECKING:
    from asyncio import Future, TimerHandle
    from collections.abc import Callable, Hashable, Iterator

    from odradek.runtime.shard import Decision, Effect


class Call:
    """One command on its way. `future` is None when nobody waits for the answer (timers, effects)."""

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
        """`deadline_s` is loop time; `wait_s_max` is how long it may wait in a queue; `guard` goes to the log with it; `timer`
        is the key of the timer that it comes from.
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


class Queues:
    """Calls that wait until something with their key happens."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[Call]] = {}

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def __iter__(self) -> Iterator[Call]:
        return iter([call for queue in self._queues.values() for call in queue])

    def join(self, key: Hashable, call: Call, length_max: int) -> bool:
        """False when the queue is full."""
        queue = self._queues.setdefault(key, deque())
        if len(queue) >= length_max:
            return False
        queue.append(call)
        return True

    def leave(self, key: Hashable, call: Call) -> None:
        queue = self._queues.get(key)
        if queue is not None and call in queue:
            queue.remove(call)
            if not queue:
                del self._queues[key]

    def wake(self, key: Hashable, has_to_wait: Callable[[Call], bool]) -> None:
        """Try the calls of `key` in their order, up to the first that has to wait on."""
        queue = self._queues.get(key)
        while queue:
            call = queue[0]
            if not call.done:
                if has_to_wait(call):
                    return
                if self._queues.get(key) is not queue:
                    return  # dropped meanwhile
            queue.popleft()
        self._queues.pop(key, None)

    def take_all(self) -> list[Call]:
        """Everybody, who waits no longer."""
        calls = list(self)
        self._queues = {}
        return calls
