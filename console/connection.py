"""Connections of browsers, which end if the browser does not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

STALL_S: Final = 10.0
"""Seconds without progress after which a connection ends. A browser that reads slowly makes progress.

Until then, a stream of events waits, so the buffer has one event above the limit of 64 KiB at most.
"""


class Connection(H11Protocol):
    """A connection that is aborted if none of the bytes that wait is sent for STALL_S, or at the end of the console."""

    _timer: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """Observe whether the bytes that wait become fewer."""
        super().pause_writing()
        self._observe()

    def resume_writing(self) -> None:
        """End the observation."""
        self._forget()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the observation."""
        self._forget()
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
