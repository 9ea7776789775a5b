"""Muting of a throttled connection: the broker does not read it until its throttle time has passed (KIP-219).

The response carries the throttle time. Clients older than KIP-219 do not wait for it.
"""

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable


class Muting:
    """Mute state of one connection."""

    __slots__ = ("_timer", "_unmuted", "muted")

    def __init__(self, unmuted: Callable[[], None]) -> None:
        """`unmuted` is called when the throttle time has passed."""
        self.muted = False
        self._unmuted = unmuted
        self._timer: TimerHandle | None = None

    def mute(self, throttle_ms: int) -> None:
        """Mute the connection for `throttle_ms` from now, unless it is muted for longer already."""
        if throttle_ms <= 0:
            return
        loop = get_running_loop()
        until_s = loop.time() + throttle_ms / 1_000
        if self._timer is not None:
            if self._timer.when() >= until_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(until_s, self._expired)
        self.muted = True

    def end(self) -> None:
        """Unmute the connection without calling `unmuted`: it is closed."""
        self.muted = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self) -> None:
        self._timer = None
        self.muted = False
        self._unmuted()
