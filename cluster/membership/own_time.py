"""The time in which a node judges others: it does not pass while the node itself stands still.

A node that was stopped, or that gets no processor, finds its timers late and the answers of others unread. It must not take
its own absence for theirs. So what it was late does not count, and after any lateness it reads what has come before it judges:

    late by less than LATE_MS          nothing happens
    late by more                       the time of the lateness is taken out, and judgement waits SETTLE_MS for what is unread
    late by more than a standstill     the time is taken out, and what was outstanding is forgotten
"""

from __future__ import annotations

from enum import Enum
from typing import Final

LATE_MS: Final = 50
"""Timers are that late on a busy machine; the time-outs have room for it."""
SETTLE_MS: Final = 20
"""Long enough for a loop to read what had arrived while it was late."""


class Lateness(Enum):
    NONE = "none"
    LATE = "late"
    STANDSTILL = "standstill"


class OwnTime:
    """Own milliseconds = monotonic milliseconds - all lateness so far."""

    def __init__(self, standstill_ms: int) -> None:
        self._standstill_ms = standstill_ms
        self._lost_ms = 0
        self._settled_ms: int | None = None

    def at(self, now_ms: int) -> int:
        return now_ms - self._lost_ms

    def waking_ms(self, due: int | None) -> int | None:
        """The monotonic time at which the node wants to be woken for a deadline in own time."""
        if self._settled_ms is not None:
            return self._settled_ms
        return None if due is None else due + self._lost_ms

    def wake(self, due: int | None, now_ms: int) -> Lateness:
        """The node is woken; its first deadline was `due`. Only after NONE may it judge."""
        late_ms = 0 if due is None else self.at(now_ms) - due
        settling, self._settled_ms = self._settled_ms is not None, None
        if late_ms > self._standstill_ms:
            self._lost_ms += late_ms
            return Lateness.STANDSTILL
        if late_ms > LATE_MS and not settling:
            self._lost_ms += late_ms
            self._settled_ms = now_ms + SETTLE_MS
            return Lateness.LATE
        return Lateness.NONE
