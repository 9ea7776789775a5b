"""Local time of the failure detector: it does not advance while the process is stopped.

After a stop, or a time without a processor, timers are late and acknowledgments of other nodes are unread. The
detector must not take its own absence for theirs. So a delay of a timer does not count:

    delay up to LATE_MS          it is ignored
    longer delay                 it is taken out of local time, and no deadline is evaluated for SETTLE_MS
    delay of a standstill        it is taken out of local time, and all outstanding probes are forgotten

Local Health Awareness of Lifeguard (Dadgar, Phillips, Currey 2017) serves the same purpose.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

LATE_MS: Final = 50
"""Maximum delay of a timer, in milliseconds, that is ignored. Timers are that late on a busy machine."""
SETTLE_MS: Final = 20
"""Time for the event loop to read the datagrams that arrived while it was late, in milliseconds."""


class Lateness(Enum):
    NONE = "none"
    LATE = "late"
    STANDSTILL = "standstill"


class LocalTime:
    """Local milliseconds = monotonic milliseconds - all delays so far."""

    def __init__(self, standstill_ms: int) -> None:
        self._standstill_ms = standstill_ms
        self._lost_ms = 0
        self._settled_ms: int | None = None

    def at(self, now_ms: int) -> int:
        """Return the local time at the monotonic time `now_ms`."""
        return now_ms - self._lost_ms

    def wake_up_ms(self, deadline: int | None) -> int | None:
        """Return the monotonic time of the next `wake`, given the first deadline in local time."""
        if self._settled_ms is not None:
            return self._settled_ms
        return None if deadline is None else deadline + self._lost_ms

    def wake(self, deadline: int | None, now_ms: int) -> Lateness:
        """Measure the delay behind the first `deadline`. Only after NONE may deadlines be evaluated."""
        late_ms = 0 if deadline is None else self.at(now_ms) - deadline
        settling, self._settled_ms = self._settled_ms is not None, None
        if late_ms > self._standstill_ms:
            self._lost_ms += late_ms
            return Lateness.STANDSTILL
        if late_ms > LATE_MS and not settling:
            self._lost_ms += late_ms
            self._settled_ms = now_ms + SETTLE_MS
            return Lateness.LATE
        return Lateness.NONE
