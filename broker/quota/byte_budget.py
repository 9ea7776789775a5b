"""Limit the bytes of requests and responses that one broker holds in memory."""

from collections.abc import Callable
from typing import Final

SMALL_SHARE: Final = 8192
"""Divisor of the budget: the share that each connection may hold while the budget is exhausted (64 KiB of 512 MiB)."""
ANSWER_SHARE: Final = 8
"""Divisor of the free budget: the share that one response made of stored records may take."""


class ByteBudget:
    """Bytes of requests and responses in memory, over all connections.

    Past the limit, connections stop being read; they are resumed in the order in which they stopped. A budget that is
    filled by half-received requests would never empty by that, so the first in line is favoured: it may go on until its
    next request has been answered. At most one is at any time.

    Clients that hold much must not stop those that hold next to nothing: below its small share a connection is always
    read, so the limit is exceeded by at most one request and one small share per connection.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._small_bytes = limit_bytes // SMALL_SHARE
        self._waiting: dict[object, Callable[[], None]] = {}
        self._favoured: object | None = None
        self._favour_used = False

    def take(self, count: int) -> None:
        self.used_bytes += count

    def give(self, count: int) -> None:
        self.used_bytes -= count
        assert self.used_bytes >= 0, "more was given back than was taken"
        if self._waiting:
            self._resume()

    def answer_room(self) -> int:
        """Bytes of stored records that one answer may take now.

        The less is left the less a reader gets, so that no number of readers that never take their answers can fill the
        budget; one that does take them asks again for what it did not get.
        """
        return max(0, self.limit_bytes - self.used_bytes) // ANSWER_SHARE

    def request_taken(self, owner: object) -> None:
        """A whole request of `owner` is in work now."""
        if self._favoured is owner:
            self._favour_used = True

    def request_done(self, owner: object) -> None:
        """A request of `owner` has been answered."""
        if self._favoured is owner and self._favour_used:
            self._favoured = None
            self._resume()

    def may_read(self, owner: object, held_bytes: int, resume: Callable[[], None]) -> bool:
        """May `owner`, which holds so much, go on? If not it stands in line now, and `resume` is called when it may."""
        if self.used_bytes < self.limit_bytes or held_bytes < self._small_bytes:
            return True
        if self._favoured is None and not self._waiting:
            self._favour(owner)
        if self._favoured is owner and not self._favour_used:
            return True
        self._waiting.setdefault(owner, resume)
        return False

    def leave(self, owner: object) -> None:
        """`owner` is gone."""
        self._waiting.pop(owner, None)
        if self._favoured is owner:
            self._favoured = None
            self._resume()

    def _favour(self, owner: object) -> None:
        self._favoured, self._favour_used = owner, False

    def _resume(self) -> None:
        while self._waiting and self.used_bytes < self.limit_bytes:
            self._call_first()
        if self._waiting and self._favoured is None:
            self._favour(next(iter(self._waiting)))
            self._call_first()

    def _call_first(self) -> None:
        owner = next(iter(self._waiting))
        self._waiting.pop(owner)()
