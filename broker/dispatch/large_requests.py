"""Decode large requests in slices, one request after the other, between other work of the event loop."""

from asyncio import Future, get_running_loop, sleep
from typing import Any, Final

from odradek.broker.dispatch.request_limits import CHARGE_BYTES_MAX
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.protocol.codec import SlicedDecoding
from odradek.runtime.tasks import Tasks

IMMEDIATE_CHARGE_BYTES_MAX: Final = 512 * 1024
"""Maximum charge of a request that is decoded in one piece, in bytes: about 5,000 elements, which take 5 ms.

The decoding of a larger request is repeated in slices.
"""


class LargeRequests:
    """Queue of the large requests of one broker.

    One request at a time is decoded. While the byte budget is exhausted, the queue waits like a connection, so that
    incomplete requests exceed the budget by at most CHARGE_BYTES_MAX.
    """

    def __init__(self, budget: ByteBudget, tasks: Tasks) -> None:
        self._budget = budget
        self._tasks = tasks
        self._queue: dict[Future[None], SlicedDecoding[Any]] = {}
        self._is_running = False

    def decode(self, decoding: SlicedDecoding[Any]) -> "Future[None]":
        """Return a future that is done when `decoding` is complete. Its exception is ChargeExceeded or Malformed.

        If the caller cancels the future, the decoding ends, and the queue keeps no reference to the request.
        """
        done: Future[None] = get_running_loop().create_future()
        self._queue[done] = decoding
        done.add_done_callback(self._remove)
        if not self._is_running:
            self._is_running = True
            self._tasks.spawn(self._run(), "large requests")
        return done

    def _remove(self, done: "Future[None]") -> None:
        self._queue.pop(done, None)

    async def _run(self) -> None:
        try:
            while self._queue:
                await self._until_within_budget()
                if self._queue:
                    await self._decode_first()
                self._budget.request_completed(self)
        finally:
            self._budget.remove(self)
            self._is_running = False

    async def _decode_first(self) -> None:
        done, decoding = next(iter(self._queue.items()))
        try:
            while not done.done() and not decoding.run_slice():  # noqa: ASYNC110  each turn decodes a slice
                await sleep(0)
        except Exception as exception:  # noqa: BLE001  this request fails; the queue continues
            if not done.done():
                done.set_exception(exception)
        else:
            if not done.done():
                done.set_result(None)
        await sleep(0)  # the owner reserves the charge, and `done` leaves the queue, before the next one is decoded

    async def _until_within_budget(self) -> None:
        freed = get_running_loop().create_future()

        def resume() -> None:
            if not freed.done():
                freed.set_result(None)

        if not self._budget.may_read(self, CHARGE_BYTES_MAX, resume):
            await freed
        self._budget.request_started(self)
