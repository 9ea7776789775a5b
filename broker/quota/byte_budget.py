"""Limit of the bytes of requests and responses that one broker holds in memory."""

from asyncio import Event
from collections.abc import Callable
from typing import Final

SMALL_SHARE: Final = 8192
"""Divisor of the budget: the share that each connection may hold while the budget is exhausted (64 KiB of 512 MiB)."""
RESPONSE_SHARE: Final = 8
"""Divisor of the free budget: the maximum share that the stored records of one response may take."""


class ByteBudget:
    """Bytes of requests and responses in memory, over all connections of a broker.

    While the free bytes are fewer than two requests of the maximum size (`stops_reading`), the broker reads from no
    connection. It resumes connections in the order in which they stopped. If requests that are only half received fill
    the budget, no request can complete and free it. Therefore one connection at a time is exempt: the first that waits,
    until its next request is completed. The bytes of one request are kept free for that connection. Those of the other
    one are for connections that have not stopped yet: each of them reads once more, and its buffer can grow.

    Connections that hold many bytes must not stop those that hold few. A connection below its small share of the limit
    is always read. So received requests exceed the limit by at most one small share or one read per connection.
    """

    def __init__(self, limit_bytes: int, request_bytes_max: int = 0) -> None:
        """`request_bytes_max` is the maximum size of one request. At most half of the limit is kept free for two."""
        self.limit_bytes = limit_bytes
        self.read_limit_bytes = max(limit_bytes - 2 * request_bytes_max, limit_bytes // 2)
        """Used bytes at which the broker stops reading."""
        self.used_bytes = 0
        self.unsent_bytes = 0
        """Bytes of `used_bytes` in responses that are not sent yet: they wait for their clients."""
        self.on_release: Callable[[], None] | None = None
        """Function that is called after bytes were released; None if no large request waits for them."""
        self._released = Event()
        """An event that is set whenever bytes are released."""
        self._small_bytes = limit_bytes // SMALL_SHARE
        self._waiting: dict[object, Callable[[], None]] = {}
        self._exempt: object | None = None
        self._exempt_in_work = False
        """True if the exempt connection has received its whole request."""

    def reserve(self, count: int) -> None:
        """Count `count` more bytes as used."""
        self.used_bytes += count

    def release(self, count: int) -> None:
        """Free `count` bytes, and resume connections that wait for them."""
        self.used_bytes -= count
        assert self.used_bytes >= 0, "the budget released more bytes than were reserved"
        self._released.set()
        if self._waiting:
            self._resume()
        if self.on_release is not None:
            self.on_release()

    async def until_free(self, count: int) -> None:
        """Wait until the budget has `count` free bytes, or permanently if `count` exceeds the limit."""
        while self.used_bytes + count > self.limit_bytes:
            self._released.clear()
            await self._released.wait()

    @property
    def stops_reading(self) -> bool:
        """True while connections must not be read. Waiting requests and unsent responses must end."""
        return self.used_bytes >= self.read_limit_bytes

    def response_capacity(self) -> int:
        """Return the bytes of stored records that one response may contain now.

        It is a share of the free budget, so that clients that do not receive their responses cannot exhaust the budget,
        however many they are. A client that receives its response fetches the rest with its next request.
        """
        return max(0, self.limit_bytes - self.used_bytes) // RESPONSE_SHARE

    def request_started(self, owner: object) -> None:
        """Record that the connection `owner` has received a whole request, which is handled now."""
        if self._exempt is owner:
            self._exempt_in_work = True

    def request_completed(self, owner: object) -> None:
        """Record that the response to a request of the connection `owner` has been sent. Its exemption ends."""
        if self._exempt is owner and self._exempt_in_work:
            self._exempt = None
            self._resume()

    def may_read(self, owner: object, held_bytes: int, resume: Callable[[], None]) -> bool:
        """Return True if the connection `owner`, which holds `held_bytes`, may read more bytes.

        Otherwise it is added to the queue, and `resume` is called when it may read.
        """
        if not self.stops_reading or held_bytes < self._small_bytes:
            return True
        if self._exempt is None and not self._waiting:
            self._set_exempt(owner)
        if self._exempt is owner and not self._exempt_in_work:
            return True
        self._waiting.setdefault(owner, resume)
        return False

    def remove(self, owner: object) -> None:
        """Remove the connection `owner`, which has closed."""
        self._waiting.pop(owner, None)
        if self._exempt is owner:
            self._exempt = None
            self._resume()

    def _set_exempt(self, owner: object) -> None:
        self._exempt, self._exempt_in_work = owner, False

    def _resume(self) -> None:
        while self._waiting and not self.stops_reading:
            self._resume_first()
        if self._waiting and self._exempt is None:
            self._set_exempt(next(iter(self._waiting)))
            self._resume_first()

    def _resume_first(self) -> None:
        owner = next(iter(self._waiting))
        self._waiting.pop(owner)()
