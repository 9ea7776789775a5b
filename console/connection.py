"""Connections of browsers, which end if the browser does not read, or does not complete its request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

STALL_S: Final = 10.0
"""Seconds without progress after which a connection ends. A browser that reads slowly makes progress.

Until then, a stream of events waits, so the buffer has one event above the limit of 64 KiB at most.
"""


REQUEST_S: Final = 20.0
"""Seconds until a request must be complete, from the connection or from its first bytes on.

Otherwise clients that send a part of a request would hold all connections of the console.
"""
_INCOMPLETE: Final = (h11.IDLE, h11.SEND_BODY)


class Connection(H11Protocol):
    """A connection with two time limits.

    It is aborted if none of the bytes that wait is sent for STALL_S, or if a request is not complete after REQUEST_S.
    """

    _timer: asyncio.TimerHandle | None = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(REQUEST_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Process bytes of a request. Start or end its time limit."""
        super().data_received(data)
        if self.conn.their_state not in _INCOMPLETE:
            self._forget_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_S, self.transport.abort)

    def pause_writing(self) -> None:
        """Observe whether the bytes that wait become fewer."""
        super().pause_writing()
        self._observe()

    def resume_writing(self) -> None:
        """End the observation."""
        self._forget()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the observation and the time limit."""
        self._forget()
        self._forget_deadline()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection when its response is complete, or abort it if the browser does not read."""
        if self._timer is not None:
            self.transport.abort()
        else:
            super().shutdown()

    def _observe(self) -> None:
        waiting = self.transport.get_write_buffer_size()

        def check() -> None:
            if self.transport.get_write_buffer_size() < waiting:
                self._observe()
            else:
                self.transport.abort()

        self._timer = self.loop.call_later(STALL_S, check)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
