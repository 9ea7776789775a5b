"""Queues of commands that an engine cannot decide yet: they wait for the load of the shard, or for another command."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from odradek.protocol.errors import Refusal

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Hashable, Iterator

    from odradek.protocol.errors import ErrorCode
    from odradek.runtime.calls import Call
    from odradek.runtime.shard import EngineLimits, RetryAfter


class WaitingCalls:
    """Bounded queues of calls. A call is refused if it waits too long or its queue is full."""

    def __init__(self, limits: EngineLimits, loading: ErrorCode) -> None:
        """Create empty queues. A call that waits too long for the load is refused with `loading`."""
        self._limits = limits
        self._loading = loading
        self._queues: dict[Hashable, deque[Call]] = {}
        self._held: dict[Call, None] = {}

    def __len__(self) -> int:
        """Return the number of waiting calls, including those that wait for the load."""
        return len(self._held) + sum(len(queue) for queue in self._queues.values())

    def __iter__(self) -> Iterator[Call]:
        """Iterate over the calls that wait for another command, without those that wait for the load."""
        return iter([call for queue in self._queues.values() for call in queue])

    # ---- calls that wait for the load -------------------------------------------------------------------------------

    def hold(self, call: Call, loop: AbstractEventLoop) -> None:
        """Keep a call until the shard is loaded. Most loads take less time than the retry back-off of a client."""
        if len(self._held) >= self._limits.load_waiting_max:
            call.reply(Refusal(self._loading))
            return
        self._held[call] = None
        call.set_deadline(loop, min(call.deadline_s, loop.time() + call.wait_s_max), self._hold_expired)

    def take_held(self) -> list[Call]:
        """Remove the calls that wait for the load, and return them in the order of their arrival."""
        held, self._held = self._held, {}
        return list(held)

    def _hold_expired(self, call: Call) -> None:
        self._held.pop(call, None)
        call.reply(Refusal(self._loading))

    # ---- calls that wait for another command ------------------------------------------------------------------------

    def wait(self, call: Call, retry: RetryAfter, loop: AbstractEventLoop) -> None:
        """Keep a call until a record with its key is appended or committed."""
        queue = self._queues.setdefault(retry.key, deque())
        if len(queue) >= self._limits.waiting_max:
            call.reply(retry.refusal)
            return
        queue.append(call)
        until_s = min(call.deadline_s, loop.time() + call.wait_s_max)
        call.set_deadline(loop, until_s, lambda waiting: self._wait_expired(waiting, retry))

    def wake(self, key: Hashable, must_wait: Callable[[Call], bool]) -> None:
        """Decide the calls that wait for `key` in their order, up to the first for which `must_wait` returns True."""
        queue = self._queues.get(key)
        while queue:
            call = queue[0]
            if not call.done:
                if must_wait(call):
                    return
                if self._queues.get(key) is not queue:
                    return  # the decision has dropped the shard
            queue.popleft()
        self._queues.pop(key, None)

    def _wait_expired(self, call: Call, retry: RetryAfter) -> None:
        # The refusal does not wait for a commit: an uncommitted transaction is a concurrent one, too.
        queue = self._queues.get(retry.key)
        if queue is not None and call in queue:
            queue.remove(call)
            if not queue:
                del self._queues[retry.key]
        call.reply(retry.refusal)

    def take_all(self) -> list[Call]:
        """Remove all calls from all queues, and return them."""
        calls = [*self, *self._held]
        self._queues, self._held = {}, {}
        return calls
