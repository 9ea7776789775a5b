"""The deadlines of one client connection: for the rest of a started request, for unsent responses, and when idle."""

from typing import Final

from odradek.broker.config.properties import Config

UNSENT_SECONDS_MAX: Final = 5.0
"""Maximum seconds in which a client receives nothing of its responses while the byte budget is exhausted.

It is shorter than WAIT_SECONDS_MAX of large requests, so that they can wait until several such clients in a row are
disconnected.
"""


class Deadlines:
    """Times of the last progress on one connection, in seconds of the event loop's clock."""

    __slots__ = ("_frame_limit_s", "_idle_limit_s", "_unsent_limit_s", "active_s", "frame_s")

    def __init__(self, config: Config, now_s: float) -> None:
        """Take odradek.frame.deadline.ms and connections.max.idle.ms from `config`."""
        self._frame_limit_s = config.odradek_frame_deadline_ms / 1000
        self._unsent_limit_s = min(self._frame_limit_s, UNSENT_SECONDS_MAX)
        self._idle_limit_s = config.connections_max_idle_ms / 1000
        self.active_s = now_s
        """The last time at which bytes arrived from the client or were written to it."""
        self.frame_s = now_s
        """The start of the time limit for the rest of a request of which only a part has arrived."""

    @property
    def unsent_s(self) -> float:
        """The end of the time in which the client must receive bytes of its responses if the budget is exhausted."""
        return self.active_s + self._unsent_limit_s

    def remaining_s(
        self, now_s: float, *, awaits_frame: bool, is_idle: bool, has_unsent: bool = False, is_exhausted: bool = False
    ) -> float:
        """Return the seconds until the next check. They are zero or less if a deadline has passed.

        The frame deadline applies if `awaits_frame`: a part of a request has arrived, and the client can send the
        rest. The idle deadline applies if `is_idle`, unless connections.max.idle.ms is negative. If the client has not
        received all responses (`has_unsent`) and the byte budget `is_exhausted`, it must receive more of them within
        UNSENT_SECONDS_MAX, or within the frame deadline if that is shorter.
        """
        remaining_s = self._frame_limit_s
        if awaits_frame:
            remaining_s = min(remaining_s, self.frame_s + self._frame_limit_s - now_s)
        if has_unsent:
            remaining_s = min(remaining_s, self.unsent_s - now_s if is_exhausted else self._unsent_limit_s)
        if is_idle and self._idle_limit_s > 0:
            remaining_s = min(remaining_s, self.active_s + self._idle_limit_s - now_s)
        return remaining_s
