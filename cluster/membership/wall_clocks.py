"""Members whose wall clock is ahead of this node's, according to the send times in their datagrams.

Only a time in the future is evidence: a datagram may be delayed for any time, but it does not arrive before it was
sent. Of two nodes whose clocks differ, the node whose clock is behind notices it.
"""

from __future__ import annotations

from typing import Final

AHEAD_MS_MAX: Final = 60_000
"""Difference in milliseconds that is reported.

Transaction time-outs are shorter where the clock is ahead. Retention is not (`odradek.runtime.expiry_time`).
"""


class WallClocks:
    """The members whose clocks are ahead."""

    def __init__(self) -> None:
        self._ahead: set[int] = set()

    def received(self, node_id: int, *, sent_ms: int, now_ms: int) -> int | None:
        """Return how far ahead the member's clock is, in milliseconds, if that is new.

        0: not any more. None: no change.
        """
        ahead_ms = sent_ms - now_ms
        if (ahead_ms > AHEAD_MS_MAX) == (node_id in self._ahead):
            return None
        if ahead_ms > AHEAD_MS_MAX:
            self._ahead.add(node_id)
            return ahead_ms
        self._ahead.discard(node_id)
        return 0
