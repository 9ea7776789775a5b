"""Log requests that wait for their response longer than a healthy cluster needs.

A client logs at most that its request timed out. The broker logs which API waits, and whether it waits for the active
controller.
"""

from asyncio import AbstractEventLoop, TimerHandle
from typing import Final

import structlog

from odradek.broker.dispatch.dispatcher import Call

LOGGED_AFTER_S: Final = 10.0
"""Seconds that one stage of a request waits before the broker logs it. Clients wait 30 s or 60 s by default."""
LINES_PER_CHECK_MAX: Final = 10
"""Maximum log lines per check. Further requests are logged by the next check if they still wait."""
CHECK_INTERVAL_S: Final = 5.0
"""Minimum seconds between two checks. With LINES_PER_CHECK_MAX, it bounds the log to 2 lines per second."""
_logger = structlog.get_logger(__name__)


class WaitingRequests:
    """Requests of one node whose handlers wait, in the order in which they began to wait.

    All requests share one timer, which is set while any request waits.
    """

    def __init__(self) -> None:
        self._since_s: dict[Call, float] = {}
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of requests that wait and have not been logged."""
        return len(self._since_s)

    def add(self, call: Call, loop: AbstractEventLoop) -> None:
        """Note that a stage of `call` waits from now on."""
        self._since_s[call] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(LOGGED_AFTER_S, self._check, loop)

    def remove(self, call: Call) -> None:
        """Note that the stage of `call` is complete."""
        self._since_s.pop(call, None)

    def close(self) -> None:
        """Log nothing from now on: the node stops."""
        self._since_s.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, loop: AbstractEventLoop) -> None:
        self._timer = None
        now_s, lines = loop.time(), 0
        while self._since_s:
            call, since_s = next(iter(self._since_s.items()))
            left_s = since_s + LOGGED_AFTER_S - now_s
            if left_s > 0 or lines == LINES_PER_CHECK_MAX:
                self._timer = loop.call_later(max(left_s, CHECK_INTERVAL_S), self._check, loop)
                return
            del self._since_s[call]
            _log(call, now_s - since_s)
            lines += 1


def _log(call: Call, waited_s: float) -> None:
    session = call.context.session
    _logger.warning(
        "request waits",
        api=call.api.name,
        version=call.context.api_version,
        client=f"{session.client_host}:{session.client_port}",
        listener=session.listener.name,
        correlation_id=call.context.correlation_id,
        waited_s=round(waited_s),
        waits_for="active controller" if call.forwarded else "this broker",
    )
