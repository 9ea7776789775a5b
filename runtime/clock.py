"""Port for reading time. No other code reads the clocks of the process."""

from typing import Final, Protocol

NEVER_MS: Final = -(2**62)
"""Monotonic time in ms of an event that has not occurred. It is before all times of a `Clock`."""


class Clock(Protocol):
    """Source of wall-clock time, for persisted deadlines, and of monotonic time, for everything else."""

    def wall_ms(self) -> int:
        """Return wall-clock time in ms since 1970. It can jump. Persisted deadlines use it."""

    def monotonic_ms(self) -> int:
        """Return monotonic time in ms from an unspecified origin. All deadlines that are not persisted use it."""

    def monotonic_us(self) -> int:
        """Return monotonic time in microseconds, to measure durations."""
