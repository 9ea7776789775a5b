"""TCP: one `Connection` per client, over the sans-IO core of `odradek.protocol.connection`.

Only `loop.create_server` and the standard transport calls are used, so this runs on uvloop, on asyncio and on a
simulated loop alike.

Back-pressure works both ways. A connection is not read on while it has too many requests in work, while its client does
not take the answers, or while the byte budget of the whole broker is used up; what has arrived meanwhile waits in the
kernel, and then in the client.
"""

from asyncio import (
    AbstractEventLoop,
    BaseTransport,
    BufferedProtocol,
    Future,
    TimerHandle,
    Transport,
    get_running_loop,
)
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from odradek.broker.dispatch.dispatcher import Call, Dispatcher
from odradek.broker.network.throttle import Muting
from odradek.broker.quorum.peers import is_broker
from odradek.broker.requests.api import Ordered
from odradek.broker.requests.futures import Failure, close_unstarted_response, result_or_failure
from odradek.broker.requests.listener import Listener
from odradek.broker.requests.session import Session
from odradek.protocol.connection import RequestFrame, ServerConnection
from odradek.protocol.errors import ErrorCode, Malformed, Refusal

if TYPE_CHECKING:
    from odradek.broker.network.server_state import Shared

SIZE_PREFIX_BYTES: Final = 4
WRITE_BUFFER_HIGH_BYTES: Final = 1024 * 1024
"""Unsent bytes at which a connection is not read on; it is read again when all of them have gone."""
REQUESTS_AT_A_TIME: Final = 8
"""Requests of one connection that are taken up in a row; then it is the others' turn."""
_logger = structlog.get_logger("broker.listener")


class Connection(BufferedProtocol):
    """One client. Requests are taken in order, their answers leave in order; see `odradek.broker.requests.api` for what overlaps."""

    def __init__(self, shared: "Shared[Connection]", listener_of: Callable[[], Listener]) -> None:
        config = shared.config
        self._shared = shared
        self._listener_of = listener_of
        self._in_flight_max = config.odradek_max_in_flight_requests
        self._frame_deadline_s = config.odradek_frame_deadline_ms / 1000
        self._idle_s = config.connections_max_idle_ms / 1000
        self._core = ServerConnection(request_bytes_max=config.socket_request_max_bytes)
        self._loop: AbstractEventLoop = get_running_loop()
        self._transport: Transport | None = None
        self._session: Session | None = None
        self._address = ""
        self._request_bytes = 0  # received and not yet answered
        self._queued_bytes = 0  # answers that wait for the answers before them
        self._response_bytes = 0  # those, and what the kernel has not taken yet
        self._in_work = 0
        self._resting = False  # while it is the others' turn
        self._muting = Muting(self._serve)
        self._held_back = False  # by an Ordered stage one, or by the creation rate
        self._client_is_slow = False
        self._reading = True
        self._had_enough = False  # and is therefore not read on
        self._serving = False
        self._flush_planned = False
        self._active_s = self._frame_s = self._loop.time()
        self._deadline: TimerHandle | None = None

    # -- transport events

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast("Transport", transport)
        if self._shared.dispatcher is not None:
            self.begin()
        else:
            self._shared.early[self] = None
            self._pause_soon()

    def begin(self) -> None:
        """Admit the connection and read from it. Called once, when the node serves."""
        transport, shared = self._transport, self._shared
        assert transport is not None
        peer = transport.get_extra_info("peername") or ("", 0)
        host, port, listener = str(peer[0]), int(peer[1]), self._listener_of()
        over = shared.limits.admit(host, protected=listener.protected)
        if over is not None:
            if shared.refusing != over:
                shared.refusing = over
                _logger.warning("connections are refused", limit=over, client=host)
            transport.abort()
            return
        shared.refusing = None
        self._address = host
        self._session = Session(shared.next_connection_id, listener, host, port)
        self._session.on_close = self._close_for
        shared.next_connection_id += 1
        shared.connections[self._session.connection_id] = self
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES, low=0)
        delay_s = shared.limits.delay_s(host, self._loop.time(), protected=listener.protected)
        if delay_s:
            self._held_back = True
            self._loop.call_later(delay_s, self._release)
            self._pause_soon()
        else:
            self._serve()  # what an early client has sent already
        self._watch()

    def _pause_soon(self) -> None:
        # A transport begins to read after connection_made, whatever that said about it. What arrives until then is kept.
        self._loop.call_soon(self._update_reading)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._core.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._session is not None and self._session.closed:
            return
        self._active_s = self._loop.time()
        if not self._core.frame_started:
            self._frame_s = self._active_s
        self._request_bytes += nbytes
        self._shared.budget.reserve(nbytes)
        try:
            self._core.buffer_updated(nbytes)
        except Malformed as error:
            self._close_malformed(error)
            return
        self._serve()

    def pause_writing(self) -> None:
        self._client_is_slow = True
        self._update_reading()

    def resume_writing(self) -> None:
        self._client_is_slow = False
        self._active_s = self._loop.time()
        self._account_responses()
        self._serve()

    def connection_lost(self, exc: Exception | None) -> None:
        shared = self._shared
        shared.early.pop(self, None)
        shared.waiting.pop(self, None)
        self._core.close()  # this object lies in cycles, and collections are rare
        if self._deadline is not None:
            self._deadline.cancel()
        session = self._session
        if session is None:
            shared.budget.release(self._request_bytes)
            return
        shared.connections.pop(session.connection_id, None)
        shared.limits.leave(self._address)
        session.end()
        self._muting.end()
        held = self._request_bytes + self._response_bytes
        self._in_work = self._request_bytes = self._response_bytes = 0
        shared.budget.remove(self)
        shared.budget.release(held)

    def close(self) -> None:
        """End the connection; what is ready goes out first."""
        if self._session is not None and not self._session.closed:
            self._flush()
            self._session.end()
        if self._transport is not None:
            self._transport.close()

    # -- requests

    def _serve(self) -> None:
        """Take up every whole request that may be taken up, then write what is ready, once."""
        if self._serving or self._session is None or self._session.closed:
            return
        self._serving = True
        try:
            core, taken = self._core, 0
            while core.buffered and self._may_take() and (frame := core.next_request()) is not None:
                taken += 1
                if taken == REQUESTS_AT_A_TIME:
                    self._resting = True
                    self._loop.call_soon(self._rested)
                self._frame_s = self._active_s
                self._take(frame, self._session)
                if self._queued_bytes > WRITE_BUFFER_HIGH_BYTES:
                    self._flush()  # and see whether the client takes it, before more is made for it
        except Malformed as error:
            self._close_malformed(error)
            return
        finally:
            self._serving = False
        if self._queued_bytes:
            self._flush()
        self._update_reading()

    def _may_take(self) -> bool:
        if self._has_enough():
            return False
        budget, held_bytes = self._shared.budget, self._request_bytes + self._response_bytes
        return budget.used_bytes < budget.limit_bytes or budget.may_read(self, held_bytes, self._budget_has_room)

    def _has_enough(self) -> bool:
        """It is this connection's own doing that it is not read on."""
        session = self._session
        held_back = self._held_back or self._resting or self._client_is_slow or self._muting.muted
        return held_back or self._in_work >= self._in_flight_max or session is None or session.closed

    def _take(self, frame: RequestFrame, session: Session) -> None:
        shared = self._shared
        session.wake_waiting()
        dispatcher = shared.dispatcher
        assert dispatcher is not None
        call = dispatcher.open(frame, session)
        self._in_work += 1
        shared.budget.request_started(self)
        if shared.ready or call.api.early(call.request):
            self._settle(call, dispatcher.handle(call))
        else:
            self._held_back = True
            shared.waiting[self] = call

    def node_is_ready(self, call: Call) -> None:
        """Take up the request that has waited for it."""
        self._held_back = False
        if self._is_open():
            dispatcher = self._dispatcher
            call = dispatcher.reopen(call)
            self._settle(call, dispatcher.handle(call))
            self._serve()

    def _settle(self, call: Call, result: Any) -> None:
        """`result` is whatever a handler, or the stage one of a handler, has come to."""
        if result is None or isinstance(result, call.api.response):
            self._respond(call, result)
        elif isinstance(result, Ordered):
            self._held_back = True
            self._when_done(result.awaitable, partial(self._stage_one_done, call))
        else:
            self._when_done(result, partial(self._stage_two_done, call))

    def _when_done(self, awaitable: Awaitable[Any], callback: Callable[["Future[Any]"], None]) -> None:
        if isinstance(awaitable, Future):
            future = awaitable
        else:
            assert iscoroutine(awaitable), awaitable
            coroutine = awaitable
            future = self._shared.tasks.spawn(result_or_failure(coroutine), "request")
            future.add_done_callback(lambda _: coroutine.close())  # cancelled by a stop, it may never have begun
        if future.done():
            callback(future)
        else:
            future.add_done_callback(callback)

    def _stage_one_done(self, call: Call, future: "Future[Any]") -> None:
        self._held_back = False
        if self._is_open():
            self._settle(call, self._result(call, future))
            self._serve()
        else:
            close_unstarted_response(future)

    def _stage_two_done(self, call: Call, future: "Future[Any]") -> None:
        if not self._is_open():
            close_unstarted_response(future)
            return
        self._respond(call, self._result(call, future))
        if self._serving:
            return
        if not self._reading:
            self._serve()
        elif not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._planned_flush)

    def _result(self, call: Call, future: "Future[Any]") -> Any:
        if future.cancelled():
            return self._dispatcher.refused(call, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "cancelled"))
        exception = future.exception()
        if exception is None:
            result = future.result()
            if not isinstance(result, Failure):
                return result
            exception = result.exception
        return self._dispatcher.refused(call, exception)

    def _release(self) -> None:
        self._held_back = False
        self._serve()

    def _rested(self) -> None:
        self._resting = False
        self._serve()

    # -- answers

    def _respond(self, call: Call, response: Any) -> None:
        shared, frame, dispatcher = self._shared, call.frame, self._shared.dispatcher
        assert dispatcher is not None
        if response is None:
            size = 0
            dispatcher.throttle(call, None)
            self._core.send_response(frame.seq, None)
        else:
            chunks = dispatcher.encode(call, response)
            size = SIZE_PREFIX_BYTES + sum(map(len, chunks))
            self._queued_bytes += size
            self._response_bytes += size
            shared.budget.reserve(size)
            self._core.send_response(frame.seq, chunks)
        self._muting.mute(call.context.throttle_ms)
        dispatcher.count(call, response, size)
        self._in_work -= 1
        released = SIZE_PREFIX_BYTES + frame.size
        self._request_bytes -= released
        shared.budget.request_completed(self)
        shared.budget.release(released)

    def _planned_flush(self) -> None:
        self._flush_planned = False
        if self._is_open():
            self._flush()

    def _flush(self) -> None:
        chunks = self._core.data_to_send()
        if not chunks:
            return
        assert self._transport is not None
        self._active_s = self._loop.time()
        self._queued_bytes -= sum(map(len, chunks))
        if not self._transport.is_closing():
            self._transport.writelines(chunks)
        self._account_responses()

    def _account_responses(self) -> None:
        assert self._transport is not None
        held = self._queued_bytes + self._transport.get_write_buffer_size()
        gone, self._response_bytes = self._response_bytes - held, held
        self._shared.budget.release(gone)

    # -- limits

    def _update_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        wanted = self._may_take()
        if wanted == self._reading:
            return
        self._reading = wanted
        if wanted:
            if self._had_enough:
                self._had_enough = False
                self._frame_s = self._loop.time()  # nobody could complete the request meanwhile
            transport.resume_reading()
        else:
            self._had_enough = self._has_enough()
            transport.pause_reading()

    def _budget_has_room(self) -> None:
        self._loop.call_soon(self._serve)

    def _watch(self) -> None:
        """Look at the deadlines when the first of them can have passed. Brokers may be silent: an end would say that one is dead."""
        if (transport := self._transport) is None or (session := self._session) is None:
            return
        now_s = self._loop.time()
        waits = [self._frame_deadline_s]
        if self._core.frame_started and not self._had_enough:
            # Also while the byte budget holds this connection back: half requests must not fill it for good.
            waits.append(self._frame_s + self._frame_deadline_s - now_s)
        is_idle = not self._in_work or self._client_is_slow
        if self._idle_s > 0 and is_idle and not is_broker(session, session.client_id):
            waits.append(self._active_s + self._idle_s - now_s)
        if min(waits) <= 0:
            _logger.info("a connection is closed: it was silent for too long", client=self._address)
            session.end()
            transport.abort()
            return
        self._deadline = self._loop.call_later(min(waits), self._watch)

    def _close_malformed(self, error: Malformed) -> None:
        self._close_logged("a connection is closed: malformed request", str(error))

    def _close_for(self, reason: str) -> None:
        """A handler has no other answer than the end."""
        self._close_logged("a connection is closed by a handler", reason)

    def _close_logged(self, event: str, reason: str) -> None:
        session = self._session
        if session is None or session.closed:
            return
        left_out = self._shared.complaints.admit(self._loop.time())
        if left_out is not None:
            client = f"{session.client_host}:{session.client_port}"
            more = {"left_out": left_out} if left_out else {}
            _logger.warning(event, client=client, listener=session.listener.name, reason=reason, **more)
        self.close()

    @property
    def _dispatcher(self) -> Dispatcher:
        dispatcher = self._shared.dispatcher
        assert dispatcher is not None
        return dispatcher

    def _is_open(self) -> bool:
        return self._session is not None and not self._session.closed
