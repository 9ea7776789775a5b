"""The clock port: wall-clock and monotonic time are apart, and neither is read anywhere else."""

from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970 (may jump). Deadlines that are persisted are made of it and judged by it."""

    def monotonic_ms(self) -> int:
        """Milliseconds from any origin, never backwards. Everything that is not persisted is measured by it."""

    def monotonic_us(self) -> int:
        """The same in microseconds, for how long something takes."""
