"""A client that is over its quota is not read for as long as it was asked to stay silent, whether it obeys or not (KIP-219)."""

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable


class Muting:
    """Of one connection."""

    __slots__ = ("_timer", "_unmuted", "muted")

    def __init__(self, unmuted: Callable[[], None]) -> None:
        """`unmuted` is called when the silence is over."""
        self.muted = False
        self._unmuted = unmuted
        self._timer: TimerHandle | None = None

    def mute(self, throttle_ms: int) -> None:
        """For so long from now on, unless it is muted for longer already."""
        if throttle_ms <= 0:
            return
        loop = get_running_loop()
        until_s = loop.time() + throttle_ms / 1_000
        if self._timer is not None:
            if self._timer.when() >= until_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(until_s, self._over)
        self.muted = True

    def end(self) -> None:
        """The connection is gone."""
        self.muted = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        self._timer = None
        self.muted = False
        self._unmuted()
