"""The deadlines of one client connection: for the rest of a started request, and for an idle client."""

from odradek.broker.config.properties import Config


class Deadlines:
    """Times of the last progress on one connection, in seconds of the event loop's clock."""

    __slots__ = ("_frame_limit_s", "_idle_limit_s", "active_s", "frame_s")

    def __init__(self, config: Config, now_s: float) -> None:
        """Take odradek.frame.deadline.ms and connections.max.idle.ms from `config`."""
        self._frame_limit_s = config.odradek_frame_deadline_ms / 1000
        self._idle_limit_s = config.connections_max_idle_ms / 1000
        self.active_s = now_s
        """The last time at which bytes arrived from the client or were written to it."""
        self.frame_s = now_s
        """The start of the time limit for the rest of a request of which only a part has arrived."""

    def remaining_s(self, now_s: float, *, awaits_frame: bool, is_idle: bool, fills_budget: bool = False) -> float:
        """Return the seconds until the next check. They are zero or less if a deadline has passed.

        The frame deadline applies if `awaits_frame`: a part of a request has arrived, and the client can send the
        rest. It also applies if `fills_budget`: the byte budget is exhausted, and the client does not receive its
        responses. The idle deadline applies if `is_idle`, unless connections.max.idle.ms is negative.
        """
        remaining_s = self._frame_limit_s
        if awaits_frame:
            remaining_s = min(remaining_s, self.frame_s + self._frame_limit_s - now_s)
        if fills_budget:
            remaining_s = min(remaining_s, self.active_s + self._frame_limit_s - now_s)
        if is_idle and self._idle_limit_s > 0:
            remaining_s = min(remaining_s, self.active_s + self._idle_limit_s - now_s)
        return remaining_s
