"""Carry out the marker plan: send requests with markers, receive the responses, and send failed markers again."""

from asyncio import Future, TimerHandle, get_running_loop
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from odradek.coordinator.txn.commands import SendMarkers
from odradek.coordinator.txn.markers import MARKERS_SENT_MAX, FinishedCompletion, MarkerPlan, MarkerRequest
from odradek.coordinator.txn.ports import Leaders, MarkerSender
from odradek.coordinator.txn.state import Partitions
from odradek.protocol.errors import Refusal
from odradek.runtime.shard import FailureHandler

MARKER_RETRY_BACKOFF_S: Final = 0.05
"""Delay in seconds before markers are sent again, after a retriable error or a lost response."""


class MarkerDriver:
    """Driver of the marker plan of a broker. All its shards share it, so markers for one leader share a request."""

    def __init__(
        self,
        leaders: Leaders,
        sender: MarkerSender,
        *,
        on_finished: Callable[[FinishedCompletion], None],
        on_failure: FailureHandler,
    ) -> None:
        """Create a driver without markers.

        `on_finished` is called on the event loop, once for each transaction that was started and not dropped.
        """
        self._leaders = leaders
        self._sender = sender
        self._on_finished = on_finished
        self._on_failure = on_failure
        self._plan = MarkerPlan()
        self._scheduled = False
        self._retry: TimerHandle | None = None
        self._stopped = False

    def start(self, shard: int, send: SendMarkers) -> None:
        """Begin to write the markers of a prepared transaction. Idempotent."""
        self._plan.start(shard, send)
        # Requests are sent in the next turn of the event loop. The response to EndTxn is sent first, and all
        # transactions of this turn share their requests.
        self._schedule()

    def leaders_changed(self, changed: Partitions) -> None:
        """Note that the metadata of these partitions has changed: another leader, or a deleted topic."""
        if len(self._plan):
            self._plan.leaders_changed(changed)
            self._schedule()

    def drop(self, shard: int) -> None:
        """Drop all transactions of `shard`."""
        self._plan.drop(shard)

    def outstanding(self, transactional_id: str) -> Partitions | None:
        """Return the partitions of the id that lack the marker; None if no marker of the id is outstanding."""
        return self._plan.outstanding(transactional_id)

    def stop(self) -> None:
        """Send no more requests."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            get_running_loop().call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._scheduled = False
        self._pump()

    def _pump(self) -> None:
        """Do a bounded part of the work, and schedule the rest for the next turn of the event loop."""
        if self._stopped:
            return
        self._plan.resolve(self._leaders.leader_of)
        handled = 0
        while handled < MARKERS_SENT_MAX and (requests := self._plan.next_requests()):
            for request in requests:
                handled += sum(len(marker.partitions) for marker in request.markers)
                try:
                    future = self._sender.write_markers(request.broker_id, request.markers)
                except Exception as failure:  # noqa: BLE001  a bug: it is reported, and others are sent
                    self._take_failure(request, failure)
                    continue
                if future.done():
                    self._take_response(request, future)
                else:
                    future.add_done_callback(partial(self._on_response, request))
        for finished in self._plan.take_finished():
            self._on_finished(finished)
        if self._plan.has_work:
            self._schedule()
        if self._plan.has_retries and self._retry is None:
            self._retry = get_running_loop().call_later(MARKER_RETRY_BACKOFF_S, self._retry_due)

    def _on_response(self, request: MarkerRequest, future: "Future[Any]") -> None:
        self._take_response(request, future)
        self._pump()

    def _take_response(self, request: MarkerRequest, future: "Future[Any]") -> None:
        if future.cancelled():
            self._plan.disconnected(request)
        elif (failure := future.exception()) is not None:
            self._take_failure(request, failure)
        else:
            self._plan.on_response(request, future.result())

    def _take_failure(self, request: MarkerRequest, failure: BaseException) -> None:
        if isinstance(failure, OSError | Refusal):
            self._plan.disconnected(request)
            return
        self._on_failure("transaction markers", failure)
        self._plan.failed(request)

    def _retry_due(self) -> None:
        self._retry = None
        self._plan.retry_due()
        self._pump()
