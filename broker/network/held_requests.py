"""Close connections whose requests wait for long, and hold much memory while the byte budget is exhausted.

A client decides how long its Fetch or JoinGroup may wait: up to 24 days. A few such requests of 64 MiB would fill the
byte budget for that time, and other requests would wait for it.
"""

from asyncio import AbstractEventLoop, TimerHandle
from typing import Final

from odradek.broker.dispatch.dispatcher import Call
from odradek.broker.quota.byte_budget import ByteBudget

HELD_BYTES_MIN: Final = 16 * 1024
"""Minimum bytes of a request, with the charges for its elements, whose connection is closed. Consumers that fetch 100
partitions without a session hold less."""
HELD_SECONDS_MAX: Final = 5.0
"""Seconds that such a request may wait while the byte budget is exhausted. Clients wait 0.5 s for records by default.

It is shorter than WAIT_SECONDS_MAX of large requests, so that they are handled after the connections are closed.
"""


class HeldRequests:
    """Large requests of one node whose wait is intended (`Api.long_poll`), in the order in which they began to wait.

    All requests share one timer, which is set while any request waits.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._since_s: dict[Call, float] = {}
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return len(self._since_s)

    def add(self, call: Call, loop: AbstractEventLoop) -> None:
        """Note that a stage of `call` waits from now on. It has no effect for a request of less than HELD_BYTES_MIN."""
        if call.frame.size + call.context.charge < HELD_BYTES_MIN:
            return
        self._since_s[call] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(HELD_SECONDS_MAX, self._check, loop)

    def remove(self, call: Call) -> None:
        """Note that the stage of `call` is complete."""
        self._since_s.pop(call, None)

    def close(self) -> None:
        """Close no connection from now on: the node stops."""
        self._since_s.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, loop: AbstractEventLoop) -> None:
        self._timer = None
        budget = self._budget
        if budget.used_bytes >= budget.limit_bytes:
            latest_s = loop.time() - HELD_SECONDS_MAX
            for call in [call for call, since_s in self._since_s.items() if since_s <= latest_s]:
                del self._since_s[call]
                call.context.session.close(f"the byte budget is exhausted, and {call.api.name} waits and holds memory")
        if self._since_s:
            self._timer = loop.call_later(HELD_SECONDS_MAX, self._check, loop)
