"""The time by which records, producers and offsets are old enough to be deleted.

A wall clock can jump by days: a broken time service, a dead clock battery, a resumed virtual machine. A broker that
deletes by its wall clock then deletes records that are not old. The expiry time is never later than the wall clock. It
also has two bounds that a jump of the wall clock does not move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

CATCH_UP_FACTOR: Final = 2
"""Maximum milliseconds by which the expiry time advances per millisecond of monotonic time.

With the factor 2, nothing is deleted before half of its retention time has passed, whatever the wall clock does. After
a correct jump (a suspended machine) or a stop, the expiry time needs as long as the jump or the stop to catch up.
"""
AHEAD_OF_MEDIAN_MS_MAX: Final = 60_000
"""Maximum milliseconds from the median of the clocks of all known nodes to the expiry time.

It covers the delay of datagrams, so that healthy clocks with a time service never reach it.
"""


class ExpiryTime:
    """The expiry time of one node, in ms since 1970."""

    def __init__(self) -> None:
        self._now_ms: int | None = None
        self._monotonic_ms = 0

    def restore(self, expiry_ms: int, monotonic_ms: int) -> None:
        """Begin at the last expiry time of the previous run of the node, instead of at its wall clock."""
        self._now_ms, self._monotonic_ms = expiry_ms, monotonic_ms

    def advance(self, *, monotonic_ms: int, wall_ms: int, peers_ms: Iterable[int]) -> int:
        """Return the expiry time now. `peers_ms` are the wall clocks of the other nodes now.

        The first call without `restore` returns the wall clock, or the bound of the median if that is earlier.
        """
        clocks = sorted((wall_ms, *peers_ms))
        now_ms = min(wall_ms, clocks[(len(clocks) - 1) // 2] + AHEAD_OF_MEDIAN_MS_MAX)
        if self._now_ms is not None:
            now_ms = min(now_ms, self._now_ms + CATCH_UP_FACTOR * (monotonic_ms - self._monotonic_ms))
        self._now_ms, self._monotonic_ms = now_ms, monotonic_ms
        return now_ms
