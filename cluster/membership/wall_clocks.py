"""Whose wall clock runs ahead of this node's, by what the datagrams say of when they were sent.

Only the future counts: a datagram may have waited anywhere for any time, but none arrives before it was sent. Of two nodes whose
clocks differ, it is therefore always the one behind that notices.
"""

from __future__ import annotations

from typing import Final

AHEAD_MS_MAX: Final = 60_000
"""A clock that is further ahead is worth a word: time-outs of transactions and retention are shorter where it rules."""


class WallClocks:
    """The nodes whose clocks are ahead."""

    def __init__(self) -> None:
        """Nobody's, as far as is known."""
        self._ahead: set[int] = set()

    def heard(self, node_id: int, *, sent_ms: int, now_ms: int) -> int | None:
        """How far ahead the node's clock is, in ms, when that is news; 0: not any more; None: nothing new."""
        ahead_ms = sent_ms - now_ms
        if (ahead_ms > AHEAD_MS_MAX) == (node_id in self._ahead):
            return None
        if ahead_ms > AHEAD_MS_MAX:
            self._ahead.add(node_id)
            return ahead_ms
        self._ahead.discard(node_id)
        return 0
