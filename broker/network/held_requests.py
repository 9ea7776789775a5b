"""Close connections whose requests wait for long, and hold much memory while the byte budget is exhausted.

A client decides how long its Fetch or JoinGroup may wait: up to 24 days. A few such requests of 64 MiB would fill the
byte budget for that time, and other requests would wait for it.
"""

from asyncio import AbstractEventLoop, TimerHandle
from operator import itemgetter
from typing import Final

from odradek.broker.dispatch.dispatcher import Call
from odradek.broker.quorum.peers import is_broker
from odradek.broker.quota.byte_budget import ByteBudget

HELD_BYTES_MIN: Final = 16 * 1024
"""Minimum bytes of a request, with the charges for its elements, whose connection is closed. Consumers that fetch 100
partitions without a session hold less."""
HELD_SECONDS_MAX: Final = 5
"""Seconds that such a request may wait while the byte budget is exhausted. Clients wait 0.5 s for records by default.

It is shorter than WAIT_SECONDS_MAX of large requests, so that they are handled after the connections are closed.
"""
CHECK_INTERVAL_S: Final = 1.0
"""Seconds between two checks whether the byte budget is exhausted."""


class HeldRequests:
    """Large requests of one node whose wait is intended (`Api.long_poll`), and that wait for records or members.

    All requests share one timer, which is set while any request waits.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._since_s: dict[Call, float] = {}
        self._timer: TimerHandle | None = None
        self._exhausted_checks = 0
        """Number of checks in a row at which the budget was exhausted."""

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return len(self._since_s)

    def add(self, call: Call, loop: AbstractEventLoop) -> None:
        """Note that `call` waits from now on. It has no effect below HELD_BYTES_MIN, and for requests of brokers."""
        context = call.context
        if _held_bytes(call) < HELD_BYTES_MIN or is_broker(context.session, context.client_id):
            return
        self._since_s[call] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(CHECK_INTERVAL_S, self._check, loop)

    def remove(self, call: Call) -> None:
        """Note that the wait of `call` has ended."""
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
        self._exhausted_checks = self._exhausted_checks + 1 if budget.stops_reading else 0
        if self._exhausted_checks >= HELD_SECONDS_MAX / CHECK_INTERVAL_S:
            self._release(budget.used_bytes - budget.read_limit_bytes, loop.time() - HELD_SECONDS_MAX)
        if self._since_s:
            self._timer = loop.call_later(CHECK_INTERVAL_S, self._check, loop)
        else:
            self._exhausted_checks = 0

    def _release(self, excess: int, latest_s: float) -> None:
        """Close connections until they have held more than `excess` bytes, those that hold most first."""
        waiting = [(call, _held_bytes(call)) for call, since_s in self._since_s.items() if since_s <= latest_s]
        for call, held in sorted(waiting, key=itemgetter(1), reverse=True):
            del self._since_s[call]
            call.context.session.close(f"the byte budget is exhausted, and {call.api.name} waits and holds memory")
            excess -= held
            if excess < 0:
                break


def _held_bytes(call: Call) -> int:
    return call.frame.size + call.context.charge
