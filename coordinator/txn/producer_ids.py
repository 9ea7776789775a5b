"""Allocate producer ids from blocks that the controller assigns (AllocateProducerIds, KIP-730)."""

from asyncio import sleep
from typing import Final

import structlog

from odradek.coordinator.txn.ports import AllocateProducerIds
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.tasks import Spawn

PREFETCH_FRACTION: Final = 0.1
"""Remaining fraction of the current block at which the next block is requested, as in Kafka."""
RETRY_BACKOFF_S: Final = 0.05
"""Delay in seconds between two requests for a block, after a failure."""

_logger = structlog.get_logger(__name__)


class ProducerIdPool:
    """Producer ids of this broker. It returns each id once, if the controller assigns each block once."""

    def __init__(self, allocate: AllocateProducerIds, spawn: Spawn) -> None:
        """Create a pool without ids. `spawn(coroutine, name)` runs a task (`odradek.runtime.tasks.Tasks.spawn`)."""
        self._allocate = allocate
        self._spawn = spawn
        self._next = 0
        self._end = 0
        self._block_length = 0
        self._reserve: tuple[int, int] | None = None
        self._last_allocated = -1
        self._allocating = False

    def take(self) -> int:
        """Return an unused producer id.

        Raises:
            Refusal: COORDINATOR_LOAD_IN_PROGRESS if no id is available. Clients of all versions retry it. Old clients
                do not retry REQUEST_TIMED_OUT (KAFKA-14417).
        """
        if self._next == self._end and self._reserve is not None:
            first, length = self._reserve
            self._reserve = None
            self._next, self._end, self._block_length = first, first + length, length
        if self._next == self._end:
            self.prefetch()
            raise Refusal(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                "the broker waits for a block of producer ids from the controller",
            )
        producer_id = self._next
        self._next += 1
        if self._end - self._next <= self._block_length * PREFETCH_FRACTION:
            self.prefetch()
        return producer_id

    def prefetch(self) -> None:
        """Request the next block, unless it is in reserve or was requested."""
        if self._reserve is None and not self._allocating:
            self._allocating = True
            self._spawn(self._fetch_block(), "producer-id-block")

    async def _fetch_block(self) -> None:
        try:
            while self._reserve is None:
                try:
                    first, length = await self._allocate()
                except (Refusal, OSError) as failure:
                    _logger.info("producer id block not allocated", reason=str(failure))
                else:
                    if length > 0 and first > self._last_allocated:
                        self._reserve = (first, length)
                        self._last_allocated = first + length - 1
                        return
                    # With a block that was assigned before, two producers would get the same identity.
                    _logger.error("producer id block refused", first=first, last_allocated=self._last_allocated)
                await sleep(RETRY_BACKOFF_S)
        finally:
            self._allocating = False
