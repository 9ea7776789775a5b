"""The production clock: the one place of the broker that asks the operating system for the time."""

import time


class SystemClock:
    """Implements `odradek.runtime.clock.Clock`. Wall time may jump; monotonic time never goes back."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000
