"""Commands that an engine cannot decide yet: they wait for the load of the shard, or for another command."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from odradek.protocol.errors import Refusal

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Hashable, Iterator

    from odradek.protocol.errors import ErrorCode
    from odradek.runtime.calls import Call
    from odradek.runtime.shard import Again, EngineLimits


class WaitingCalls:
    """Bounded queues of calls. A call that waits too long, or finds its queue full, is refused."""

    def __init__(self, limits: EngineLimits, loading: ErrorCode) -> None:
        """Make empty queues. `loading` refuses a call that the shard has not been loaded for in time."""
        self._limits = limits
        self._loading = loading
        self._queues: dict[Hashable, deque[Call]] = {}
        self._early: dict[Call, None] = {}

    def __len__(self) -> int:
        return len(self._early) + sum(len(queue) for queue in self._queues.values())

    def __iter__(self) -> Iterator[Call]:
        """Iterate over the calls that wait for another command."""
        return iter([call for queue in self._queues.values() for call in queue])

    # ---- for the load -----------------------------------------------------------------------------------------------

    def hold(self, call: Call, loop: AbstractEventLoop) -> None:
        """Keep a call that arrived before the shard serves: most loads take less time than the back-off of a client."""
        if len(self._early) >= self._limits.early_max:
            call.reply(Refusal(self._loading))
            return
        self._early[call] = None
        call.arm(loop, min(call.deadline_s, loop.time() + call.wait_s_max), self._hold_expired)

    def take_held(self) -> list[Call]:
        """Return the calls that waited for the load, in the order of their arrival."""
        early, self._early = self._early, {}
        return list(early)

    def _hold_expired(self, call: Call) -> None:
        self._early.pop(call, None)
        call.reply(Refusal(self._loading))

    # ---- for another command ----------------------------------------------------------------------------------------

    def wait(self, call: Call, again: Again, loop: AbstractEventLoop) -> None:
        """Keep a call until something with its key is written or committed."""
        queue = self._queues.setdefault(again.key, deque())
        if len(queue) >= self._limits.waiting_max:
            call.reply(again.refusal)
            return
        queue.append(call)
        until_s = min(call.deadline_s, loop.time() + call.wait_s_max)
        call.arm(loop, until_s, lambda waiting: self._wait_expired(waiting, again))

    def wake(self, key: Hashable, has_to_wait: Callable[[Call], bool]) -> None:
        """Try the calls of `key` in their order, up to the first that must still wait."""
        queue = self._queues.get(key)
        while queue:
            call = queue[0]
            if not call.done:
                if has_to_wait(call):
                    return
                if self._queues.get(key) is not queue:
                    return  # the shard was dropped meanwhile
            queue.popleft()
        self._queues.pop(key, None)

    def _wait_expired(self, call: Call, again: Again) -> None:
        # The refusal does not wait for a commit: CONCURRENT_TRANSACTIONS is true of uncommitted work, too.
        queue = self._queues.get(again.key)
        if queue is not None and call in queue:
            queue.remove(call)
            if not queue:
                del self._queues[again.key]
        call.reply(again.refusal)

    def take_all(self) -> list[Call]:
        """Empty all queues and return their calls."""
        calls = [*self, *self._early]
        self._queues, self._early = {}, {}
        return calls
