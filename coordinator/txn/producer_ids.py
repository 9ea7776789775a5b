"""Producer ids, taken one by one from blocks that the controller hands out (kafka-facts 5.3)."""

from asyncio import sleep
from typing import Final

import structlog

from odradek.coordinator.txn.ports import AllocateProducerIds
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.tasks import Spawn

PREFETCH_PART_LEFT: Final = 0.1
"""The next block is asked for when so much of the current one is left."""
RETRY_BACKOFF_S: Final = 0.05

_log = structlog.get_logger(__name__)


class ProducerIdPool:
    """Never gives an id twice, as long as the controller does not."""

    def __init__(self, allocate: AllocateProducerIds, spawn: Spawn) -> None:
        """`spawn(coroutine, name)` runs a task that somebody owns (runtime.tasks.Tasks.spawn)."""
        self._allocate = allocate
        self._spawn = spawn
        self._next = 0
        self._end = 0
        self._block_length = 0
        self._reserve: tuple[int, int] | None = None
        self._last_allocated = -1
        self._allocating = False

    def take(self) -> int:
        """A fresh producer id.

        Raises Refusal(COORDINATOR_LOAD_IN_PROGRESS) while there is none: clients of all ages retry that, while
        REQUEST_TIMED_OUT is the end for old ones (KAFKA-14417).
        """
        if self._next == self._end and self._reserve is not None:
            first, length = self._reserve
            self._reserve = None
            self._next, self._end, self._block_length = first, first + length, length
        if self._next == self._end:
            self.prefetch()
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "waiting for a block of producer ids")
        producer_id = self._next
        self._next += 1
        if self._end - self._next <= self._block_length * PREFETCH_PART_LEFT:
            self.prefetch()
        return producer_id

    def prefetch(self) -> None:
        """Ask for a block unless one lies in reserve or is asked for already."""
        if self._reserve is None and not self._allocating:
            self._allocating = True
            self._spawn(self._fetch_block(), "producer-id-block")

    async def _fetch_block(self) -> None:
        try:
            while self._reserve is None:
                try:
                    first, length = await self._allocate()
                except (Refusal, OSError) as failure:
                    _log.info("no block of producer ids yet", reason=str(failure))
                else:
                    if length > 0 and first > self._last_allocated:
                        self._reserve = (first, length)
                        self._last_allocated = first + length - 1
                        return
                    # Ids handed out before would be handed out again: two producers with one identity.
                    _log.error("refused a block of producer ids", first=first, last_known=self._last_allocated)
                await sleep(RETRY_BACKOFF_S)
        finally:
            self._allocating = False
