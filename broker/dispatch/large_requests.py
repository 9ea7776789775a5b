"""Memory of large requests: charges before and while they are handled, and the order in which they go on."""

from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from odradek.broker.dispatch.error_counts import counter_of
from odradek.broker.dispatch.request_limits import CHARGE_BYTES_MAX, LARGE_FRAME_APIS
from odradek.broker.dispatch.request_metrics import ApiMetrics
from odradek.broker.quorum.peers import is_broker
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.large_work import LargeWork, RequestDropped
from odradek.broker.requests.session import Session
from odradek.protocol.codec import SlicedDecoding, SlicedPacking
from odradek.protocol.schema import Message, Packed, Struct

IMMEDIATE_CHARGE_BYTES_MAX: Final = 512 * 1024
"""Maximum charge of a request that is decoded in one piece, in bytes: about 5,000 elements, which take 5 ms.

The decoding of a larger request is repeated in slices.
"""
WAIT_SECONDS_MAX: Final = 30.0
"""Maximum seconds that a large request waits for memory before its connection is closed.

Most clients wait 30 s for a response. Without a maximum, requests that hold memory could wait for each other.
"""
UNSENT_SHARE: Final = 64
"""Divisor of the byte budget: responses that clients do not receive may hold this share while the oldest large request
exceeds the budget."""


class LargeRequest:
    """One large request: its memory, and its turns on the event loop. `LargeRequests.begin` creates it."""

    __slots__ = ("_context", "_group", "_waits", "charged", "waiter")

    def __init__(self, group: "LargeRequests", context: RequestContext) -> None:
        self._group = group
        self._context = context
        self._waits = not context.session.is_forwarded and not is_broker(context.session, context.client_id)
        self.charged = 0 if context.api_key in LARGE_FRAME_APIS else context.request_bytes
        """Bytes that the byte budget holds for this request. A frame that may exceed CHARGE_BYTES_MAX is left out."""
        self.waiter: Future[None] | None = None

    async def turn(self) -> None:
        """Let other work run, and wait until this request may go on.

        Raise RequestDropped if the connection has ended, or if it is closed because the memory is exhausted.
        """
        session, group = self._context.session, self._group
        await group.next_turn(session)
        group.wake()
        session.check_peer()
        await group.until_permitted(self)
        session.check_peer()
        if session.closed:
            raise RequestDropped
        if self._waits and group.is_exhausted and self.charged > CHARGE_BYTES_MAX:
            self._drop(f"the byte budget is exhausted, and the request needs more than {CHARGE_BYTES_MAX} bytes")

    @property
    def waits(self) -> bool:
        """False for requests of brokers: if one waited, requests that wait for replication could not be completed."""
        return self._waits

    def charge(self, count: int) -> None:
        """Reserve `count` bytes of the byte budget until the response is sent; release them if `count` is negative."""
        self.charged += count
        self._context.reserve(count)

    @contextmanager
    def reserved(self, count: int) -> Iterator[None]:
        """Reserve `count` bytes of the byte budget within the block, for objects that are dropped at its end."""
        self.charge(count)
        try:
            yield
        finally:
            self.charge(-count)

    async def decode(self, decoding: SlicedDecoding[Any]) -> None:
        """Decode the request in slices. Raise ChargeExceeded, Malformed or RequestDropped."""
        charged = 0
        done = False
        with self._group.decoding(self):
            while not done:
                await self.turn()
                done = decoding.run_slice()
                self.charge(decoding.charge - charged)
                charged = decoding.charge

    async def pack(self, message: type[Message], elements: Sequence[Struct]) -> Packed:
        """Encode elements of an array of the response in slices, and charge for the result.

        Raise Unencodable or RequestDropped.
        """
        context = self._context
        packing = SlicedPacking(message, context.api_version, elements)
        while not packing.run_slice():
            await self.turn()
        packed = packing.packed()
        self.charge(len(packed.data))
        self._group.count_errors(context.api_key, elements)
        return packed

    def is_closed(self) -> bool:
        """Return True if the connection has ended."""
        return self._context.session.closed

    def expire(self) -> None:
        """Close the connection: the request has waited for WAIT_SECONDS_MAX."""
        self._context.session.close(f"the byte budget is exhausted for {WAIT_SECONDS_MAX:.0f} s; send it again later")

    def on_end(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` when the connection ends (`Session.on_end`)."""
        return self._context.session.on_end(callback)

    def _drop(self, reason: str) -> None:
        self._context.session.close(reason)
        raise RequestDropped


class LargeRequests:
    """Large requests of one broker, in the order of their arrival.

    One request of a client and one of a broker go on per iteration of the event loop. One request at a time is decoded.
    While the byte budget is exhausted, only the oldest request goes on, unless responses that clients do not receive
    fill the budget. So large requests exceed the budget by at most one request: CHARGE_BYTES_MAX.
    """

    def __init__(self, budget: ByteBudget, metrics: Mapping[int, ApiMetrics]) -> None:
        self._budget = budget
        self._metrics = metrics
        self._requests: dict[LargeRequest, None] = {}
        self._decoding: dict[LargeRequest, None] = {}
        """The requests that are not decoded yet. The first one is being decoded."""
        self._waiting: dict[LargeRequest, None] = {}
        """The requests that wait for the byte budget."""
        self._turns: tuple[deque[Future[None]], deque[Future[None]]] = (deque(), deque())
        """The requests that wait for their next turn: those of brokers, and those of clients."""

    async def next_turn(self, session: Session) -> None:
        """Wait for the next turn of a request of `session`.

        One request of a client and one of a broker go on per iteration of the event loop. Otherwise many large requests
        would together hold it for seconds, and the node would be taken as failed.
        """
        loop = get_running_loop()
        waiter = loop.create_future()
        if not any(self._turns):
            loop.call_soon(self._give_turns)
        of_client = session.is_forwarded or not is_broker(session, session.client_id)
        self._turns[of_client].append(waiter)
        await waiter

    def _give_turns(self) -> None:
        for waiting in self._turns:
            while waiting:
                waiter = waiting.popleft()
                if not waiter.done():  # its task was not cancelled
                    waiter.set_result(None)
                    break
        if any(self._turns):
            get_running_loop().call_soon(self._give_turns)

    @contextmanager
    def begin(self, context: RequestContext) -> Iterator[LargeWork]:
        """Work on the request of `context`: add it as the youngest one, or continue work that has begun."""
        if context.large is not None:
            yield context.large
            return
        context.large = request = LargeRequest(self, context)
        self._requests[request] = None
        try:
            yield request
        finally:
            context.large = None
            del self._requests[request]
            self.wake()

    @contextmanager
    def decoding(self, request: LargeRequest) -> Iterator[None]:
        """Decode `request` when the requests before it are decoded."""
        self._decoding[request] = None
        try:
            yield
        finally:
            del self._decoding[request]
            if self._decoding:
                _wake(next(iter(self._decoding)))

    @property
    def is_exhausted(self) -> bool:
        """True if requests and responses hold the whole byte budget. `ByteBudget.stops_reading` is True earlier."""
        return self._budget.used_bytes >= self._budget.limit_bytes

    async def until_permitted(self, request: LargeRequest) -> None:
        """Wait until `request` may go on, or until its connection ends."""
        while request.waits and not request.is_closed() and self._must_queue(request):
            await self._sleep(request)
        if request.is_closed() or self._is_permitted(request):
            return
        expiry = get_running_loop().call_later(WAIT_SECONDS_MAX, request.expire)
        self._waiting[request] = None
        self._budget.on_release = self.wake
        try:
            while not (request.is_closed() or self._is_permitted(request)):
                await self._sleep(request)
        finally:
            expiry.cancel()
            del self._waiting[request]
            if not self._waiting:
                self._budget.on_release = None

    def _must_queue(self, request: LargeRequest) -> bool:
        return request in self._decoding and request is not next(iter(self._decoding))

    async def _sleep(self, request: LargeRequest) -> None:
        request.waiter = get_running_loop().create_future()
        forget = request.on_end(lambda: _wake(request))
        try:
            await request.waiter
        finally:
            forget()
            request.waiter = None

    def _is_permitted(self, request: LargeRequest) -> bool:
        if not request.waits or not self.is_exhausted:
            return True
        budget = self._budget
        return request is next(iter(self._requests)) and budget.unsent_bytes <= budget.limit_bytes // UNSENT_SHARE

    def wake(self) -> None:
        """Resume the first waiting request that may go on. It resumes the next one when it takes its next turn."""
        if not self._waiting:
            return
        request = next(iter(self._requests if self.is_exhausted else self._waiting))
        if request in self._waiting and self._is_permitted(request):
            _wake(request)

    def count_errors(self, api_key: int, elements: Sequence[Struct]) -> None:
        """Count the errors of elements whose objects are dropped before the response is complete."""
        count, errors = counter_of(type(elements[0])), self._metrics[api_key].errors
        for element in elements:
            count(element, errors)


def _wake(request: LargeRequest) -> None:
    if request.waiter is not None and not request.waiter.done():
        request.waiter.set_result(None)
