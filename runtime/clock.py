"""Port for reading time. No other code reads the clocks of the process."""

from typing import Final, Protocol

NEVER_MS: Final = -(2**62)
"""Monotonic time in ms of an event that has not occurred. It is before all times of a `Clock`."""


class Clock(Protocol):
    """Source of wall-clock time, for persisted deadlines, and of monotonic time, for everything else."""

    def wall_ms(self) -> int:
        """Return wall-clock time in ms since 1970. It can jump. Timestamps and persisted deadlines use it."""

    def expiry_ms(self) -> int:
        """Return the time in ms since 1970 by which age is measured before something is deleted.

        It is at most the wall clock, and a jump of the wall clock does not move it (`odradek.runtime.expiry_time`).
        """

    def monotonic_ms(self) -> int:
        """Return monotonic time in ms from an unspecified origin. All deadlines that are not persisted use it."""

    def monotonic_us(self) -> int:
        """Return monotonic time in microseconds, to measure durations."""
