"""The clock of a broker process. Other modules of the broker do not read the time from the operating system."""

import time


class SystemClock:
    """Clock of the operating system (`odradek.runtime.clock.Clock`). Wall time can jump; monotonic time cannot."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def expiry_ms(self) -> int:
        """Return the wall-clock time. `ExpiryClock` of the node bounds it."""
        return self.wall_ms()

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000
