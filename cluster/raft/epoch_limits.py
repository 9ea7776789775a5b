"""Bounds of the epochs that a replica accepts from messages and from its disk (docs/decisions/0076).

A request can come from any process that reaches the listener, so it raises the epoch by a bounded number. A reply comes
from a configured voter, over a connection that this node has opened. Only a reply can raise the epoch further.
"""

from __future__ import annotations

from typing import Final

EPOCH_LAST: Final = 2**31 - 2
"""Highest epoch of a replica. The wire and the log store epochs as int32; 2^31-1 stays unused."""
REPLY_EPOCH_MAX: Final = 2**31 - 2**20
"""Highest epoch that a lagging replica accepts from a reply. A million elections remain possible above it."""
EPOCH_JUMP_MAX: Final = 1_000_000
"""Maximum epochs by which requests of other nodes raise the epoch of a replica.

With pre-votes, an election raises the epoch by few. A replica that missed more elections learns the epoch from a reply.
"""
EPOCHS_PER_SECOND: Final = 10
"""Epochs per second that requests may raise in the long term.

Voters start fewer elections: the default election time-out is one second. A continuous flood of forged votes takes more
than six years to reach the last epoch.
"""


def is_acceptable_in_reply(epoch: int, own_epoch: int) -> bool:
    """Return True if a replica in `own_epoch` accepts a reply of `epoch`."""
    return epoch <= min(max(REPLY_EPOCH_MAX, own_epoch + EPOCH_JUMP_MAX), EPOCH_LAST)


class EpochBudget:
    """The epochs by which requests may raise the epoch of a replica at this moment: a token bucket."""

    def __init__(self) -> None:
        self._epochs = EPOCH_JUMP_MAX
        self._refilled_ms: int | None = None

    def take(self, epochs: int, now_ms: int) -> bool:
        """Return True if a request may raise the epoch by `epochs` now, and subtract them from the budget."""
        self._refill(now_ms)
        if epochs > self._epochs:
            return False
        self._epochs -= epochs
        return True

    def _refill(self, now_ms: int) -> None:
        if self._refilled_ms is None:
            self._refilled_ms = now_ms
        earned = (now_ms - self._refilled_ms) * EPOCHS_PER_SECOND // 1_000
        if earned > 0:
            self._epochs = min(self._epochs + earned, EPOCH_JUMP_MAX)
            self._refilled_ms = now_ms
