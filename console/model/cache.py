"""Values of a cluster that several requests of one principal share for a short time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from odradek.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

T = TypeVar("T")

TTL_S: Final = 1.0
"""Seconds for which a value is used again, from the end of its reading, at least."""
TTL_PER_SECOND: Final = 3.0
"""Further seconds per second of the reading. Metadata of a large cluster are then a quarter of the work at most."""
ENTRIES_MAX: Final = 64
"""Maximum values per cache. The oldest one is evicted."""


class Cache:
    """Values by key. Requests for a key whose value is being read wait for the same reading."""

    def __init__(self, ttl_s: float = TTL_S) -> None:
        self._ttl_s = ttl_s
        self._readings: dict[Hashable, asyncio.Task[Any]] = {}
        self._expiries: dict[Hashable, float] = {}

    async def get(self, key: Hashable, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the value of a key, read again if it is too old. A failed reading is not kept."""
        now = asyncio.get_running_loop().time()
        reading: asyncio.Task[T] | None = self._readings.get(key)
        if reading is None or (reading.done() and self._expiries.get(key, now) <= now):
            self._readings.pop(key, None)
            while len(self._readings) >= ENTRIES_MAX:
                self._forget(next(iter(self._readings)))
            reading = asyncio.create_task(read())
            self._readings[key] = reading
            self._expiries.pop(key, None)
            reading.add_done_callback(partial(self._read, key, now))
        try:
            # A request that ends early must not end the reading for the others.
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            if reading.cancelled():
                raise ClientError("the session has ended", "load the page again") from None
            raise

    def clear(self) -> None:
        """Forget all values. Requests that wait for a reading still receive its value."""
        self._readings.clear()
        self._expiries.clear()

    def close(self) -> None:
        """Forget all values, and cancel the readings. Requests that wait for one raise ClientError."""
        for reading in self._readings.values():
            reading.cancel()
        self.clear()

    def _read(self, key: Hashable, began: float, task: asyncio.Task[Any]) -> None:
        failed = task.cancelled() or task.exception() is not None
        if self._readings.get(key) is not task:
            return
        if failed:
            self._forget(key)
        else:
            now = asyncio.get_running_loop().time()
            self._expiries[key] = now + self._ttl_s + TTL_PER_SECOND * (now - began)

    def _forget(self, key: Hashable) -> None:
        self._expiries.pop(key, None)
        del self._readings[key]
