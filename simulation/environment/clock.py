"""Clocks of a simulated node: the wall clock can be stepped, the monotonic clock is virtual time."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.simulation.environment.loop import SimLoop

EPOCH_MS: Final = 1_700_000_000_000


class SimClock:
    """Wall clock and monotonic clock on the virtual time of the loop. `jump` steps the wall clock."""

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop
        self.offset_ms = 0
        self.drift = 0.0
        """Wall-clock milliseconds gained per millisecond of virtual time."""

    def wall_ms(self) -> int:
        return EPOCH_MS + self.offset_ms + int(self._loop.time() * 1000 * (1 + self.drift))

    def expiry_ms(self) -> int:
        """Return the wall-clock time. `ExpiryClock` of the node bounds it."""
        return self.wall_ms()

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def monotonic_us(self) -> int:
        return self.monotonic_ms() * 1_000

    def jump(self, by_ms: int) -> None:
        self.offset_ms += by_ms
