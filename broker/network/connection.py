"""One TCP connection of a client, over the sans-IO core of `odradek.protocol.connection`.

A connection uses only standard transport calls, so it runs on uvloop, on asyncio and on a simulated event loop.

Back-pressure works in both directions. The broker does not read the transport in these cases:

* The connection has too many requests in flight.
* Its client does not receive the responses.
* The byte budget of the broker is exhausted.

Bytes that arrive then wait in the kernel, and when its buffer is full, in the client.
"""

from asyncio import (
    AbstractEventLoop,
    BaseTransport,
    BufferedProtocol,
    Future,
    Handle,
    TimerHandle,
    Transport,
    get_running_loop,
)
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from odradek.broker.config.properties import Config
from odradek.broker.dispatch.dispatcher import Call, Dispatcher
from odradek.broker.dispatch.request_limits import frame_bytes_max
from odradek.broker.network.connection_states import INTAKE, READING, Intake, IntakeEvent, Reading, ReadingEvent
from odradek.broker.network.deadlines import Deadlines
from odradek.broker.network.peer_end import has_ended
from odradek.broker.network.throttle import Muting
from odradek.broker.quorum.peers import is_broker
from odradek.broker.requests.api import Ordered
from odradek.broker.requests.futures import close_unstarted_response, future_of, result_of
from odradek.broker.requests.listener import Listener
from odradek.broker.requests.session import Session
from odradek.broker.requests.session_login import SessionExpired
from odradek.broker.tls.node_tls import ListenerTls, NoPrincipal
from odradek.protocol.connection import RequestFrame, ServerConnection
from odradek.protocol.errors import Malformed
from odradek.protocol.sasl.cluster_secret import AnotherNode
from odradek.protocol.sasl.mechanism import AuthenticationFailed
from odradek.protocol.security_protocol import SecurityProtocol

if TYPE_CHECKING:
    from odradek.broker.network.server_state import ServerState
    from odradek.protocol.schema import Buffer

SIZE_PREFIX_BYTES: Final = 4
WRITE_BUFFER_HIGH_BYTES: Final = 1024 * 1024
"""Maximum unsent bytes per connection; beyond them the broker stops reading it until all of them are sent."""
REQUESTS_AT_A_TIME: Final = 8
"""Maximum requests of one connection that are taken in a row before the event loop runs other connections."""
TURN_US_MAX: Final = 5_000
"""Microseconds after which a connection takes no further request before the event loop runs other connections.

One request takes up to about 10 ms if its elements are just below the limits above which it is handled in slices.
"""
# Module constants, because an Enum class runs Python code to look up a member (Python 3.11). Each request needs some
# of these.
OPEN: Final = Intake.OPEN
CLOSED: Final = Intake.CLOSED
TURN_USED: Final = IntakeEvent.TURN_USED
NEXT_TURN: Final = IntakeEvent.NEXT_TURN
HOLD: Final = IntakeEvent.HOLD
RELEASE: Final = IntakeEvent.RELEASE
READ: Final = Reading.ON
BELOW_LIMITS: Final = ReadingEvent.BELOW_LIMITS


class Connection(BufferedProtocol):
    """One client connection. It takes requests, and sends responses, in the order of the requests.

    Stages two of requests overlap; see `odradek.broker.requests.api`.
    """

    def __init__(
        self,
        server: "ServerState[Connection]",
        listener_of: Callable[[], Listener],
        config: Config,
        tls: ListenerTls | None = None,
    ) -> None:
        """`config`: the configuration with the values of the listener. `tls`: the TLS of the listener."""
        self._tls = tls
        self._config = config
        self._server = server
        self._listener_of = listener_of
        self._in_flight_max = config.odradek_max_in_flight_requests
        self._core = ServerConnection(
            request_bytes_max=config.socket_request_max_bytes,
            limit_of_key=self._frame_bytes_max,
            on_spare=self._charge,
            receive_buffer=server.receive_buffer,
        )
        self._loop: AbstractEventLoop = get_running_loop()
        self._transport: Transport | None = None
        self._session: Session | None = None
        self._intake = Intake.ACCEPTED
        self._reading = READ
        self._muting = Muting(self._serve)
        self._client_is_slow = False
        """True from pause_writing to resume_writing of the transport (see WRITE_BUFFER_HIGH_BYTES)."""
        self._in_flight = 0
        self._request_bytes = 0
        """Bytes received of requests that have no response yet, the charges of their elements, and the unused bytes of
        the buffer of an incomplete request."""
        self._queued_bytes = 0
        """Bytes of responses that wait for responses of earlier requests, or for the next flush."""
        self._response_bytes = 0
        """`_queued_bytes`, and the bytes that the transport holds."""
        self._planned_flush: Handle | None = None
        """Writes the responses that become ready in one iteration of the event loop together."""
        self._deadlines = Deadlines(config, self._loop.time())
        self._watch_timer: TimerHandle | None = None

    # ---- transport events -------------------------------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast("Transport", transport)
        if self._server.dispatcher is not None:
            self.begin()
        elif self._server.may_wait:
            self._server.early[self] = None
            self._pause_soon()
        else:
            self._transport.abort()

    def handshake_done(self, certificate: bytes | None) -> None:
        """Set the principal of a listener with the security protocol SSL from the client's certificate in DER."""
        session, tls = self._session, self._tls
        if session is None or tls is None or session.listener.security_protocol is not SecurityProtocol.SSL:
            return
        try:
            session.log_in(tls.principal(certificate))
        except NoPrincipal as error:
            self._server.failed_handshakes[session.listener.name] += 1
            self._close_logged("connection closed: client certificate without principal", str(error))

    def handshake_failed(self, reason: str) -> None:
        """Log a failure of TLS. The transport is closed."""
        if self._session is not None:
            self._server.failed_handshakes[self._session.listener.name] += 1
            self._server.log_refused("TLS handshake failed", self._session, reason, self._loop.time())

    def begin(self) -> None:
        """Admit the connection and take its requests. The caller calls it once, when the node serves requests."""
        transport, server = self._transport, self._server
        if self._intake is CLOSED:
            return
        assert transport is not None
        peer = transport.get_extra_info("peername") or ("", 0)
        host, port, listener = str(peer[0]), int(peer[1]), self._listener_of()
        session = server.admit(self, listener, host, port)
        if session is None:
            transport.abort()
            return
        self._session = session
        session.on_close = self._close_for
        session.on_charge = self._charge
        session.on_login_failed = self._log_failed_login
        session.on_check = self._check_peer
        assert server.dispatcher is not None
        session.begin_large = server.dispatcher.begin_large
        session.on_next_turn = server.dispatcher.next_turn
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES, low=0)
        delay_s = server.limits.delay_s(host, self._loop.time(), protected=listener.protected)
        if delay_s:
            self._step(IntakeEvent.ADMITTED_LATER)
            self._loop.call_later(delay_s, self._continue, IntakeEvent.DELAY_OVER)
            self._pause_soon()
        else:
            self._step(IntakeEvent.ADMITTED)
            self._serve()  # the client may have sent requests before the node served them
        self._watch()

    def _pause_soon(self) -> None:
        # The transport begins to read after connection_made returns, and overrides a pause in it. Bytes read before
        # the pause are kept.
        self._loop.call_soon(self._update_reading)

    def _step(self, event: IntakeEvent) -> None:
        self._intake = INTAKE.look_up(self._intake, event)

    def _continue(self, event: IntakeEvent) -> None:
        self._step(event)
        self._serve()

    def get_buffer(self, sizehint: int) -> memoryview:
        # The transports of uvloop, asyncio and the simulator read into the buffer before any other callback runs.
        return self._core.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._intake is CLOSED:
            return
        deadlines = self._deadlines
        deadlines.active_s = self._loop.time()
        if not self._core.frame_started:
            deadlines.frame_s = deadlines.active_s
        self._request_bytes += nbytes
        self._server.budget.reserve(nbytes)
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
        self._deadlines.active_s = self._loop.time()
        self._account_responses()
        self._serve()

    def connection_lost(self, exc: Exception | None) -> None:
        server = self._server
        server.early.pop(self, None)
        server.waiting.pop(self, None)
        self._step(IntakeEvent.CLOSE)
        self._core.close()  # frees the buffers: this object is in reference cycles, which are collected rarely
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        session = self._session
        if session is None:
            server.budget.release(self._request_bytes)
            return
        server.leave(session)
        session.end()
        self._muting.end()
        held = self._request_bytes + self._response_bytes
        server.budget.unsent_bytes -= self._response_bytes
        self._in_flight = self._request_bytes = self._response_bytes = 0
        server.budget.remove(self)
        server.budget.release(held)

    def close(self) -> None:
        """Close the connection after sending the responses that are ready."""
        session = None if self._intake is CLOSED else self._session
        if session is not None:
            self._flush()
        self._step(IntakeEvent.CLOSE)
        if session is not None:
            session.end()
        if self._transport is not None:
            self._transport.close()

    def close_if_idle(self, idle_s: float, *, in_flight: bool = False) -> bool:
        """Close the connection if it has sent no request, or has no request in flight and sent none for `idle_s`.

        With `in_flight`, requests in flight do not matter: a client can hold each of them for any time. Return False
        without a change otherwise, or if the client is another broker.
        """
        session, transport = self._session, self._transport
        if session is None or transport is None or self._intake is CLOSED or (self._in_flight and not in_flight):
            return False
        is_silent = session.client_id is None or self._loop.time() - self._deadlines.active_s >= idle_s
        if not is_silent or is_broker(session, session.client_id):
            return False
        self._end()
        return True

    # ---- requests ---------------------------------------------------------------------------------------------------

    def _serve(self, *, in_turn: bool = False) -> None:
        """Take each complete request that may be taken, then write the responses that are ready, once.

        Without `in_turn`, the connection waits for a later turn if the event loop has much other work.
        """
        session = self._session
        if session is None or self._intake is CLOSED:
            return
        core, server, login, taken = self._core, self._server, session.login, 0
        try:
            if server.is_busy and core.buffered and not in_turn and self._intake is OPEN and not self._is_of_broker():
                self._end_turn()
            while core.buffered and self._may_take() and (frame := core.next_request(is_raw=login.is_raw)) is not None:
                taken += 1
                if taken == 1:
                    began_us = self._dispatcher.now_us()
                    end_us = began_us + TURN_US_MAX
                if taken == REQUESTS_AT_A_TIME:
                    self._end_turn()
                self._deadlines.frame_s = self._deadlines.active_s
                self._take(frame, session)
                if self._queued_bytes > WRITE_BUFFER_HIGH_BYTES:
                    self._flush()  # before more responses are made, find out if the client receives these
                if core.buffered and self._intake is OPEN and self._dispatcher.now_us() >= end_us:
                    self._end_turn()
            if self._queued_bytes:
                self._flush()
        except Malformed as error:
            self._close_malformed(error)
            return
        finally:
            if taken:
                server.note_work(self._dispatcher.now_us() - began_us)
        self._update_reading()

    def _is_of_broker(self) -> bool:
        """Return True if the client is another broker. Its requests do not wait for those of clients."""
        session = self._session
        return session is not None and is_broker(session, session.client_id)

    def _end_turn(self) -> None:
        """Take no further request before the event loop has run other connections."""
        self._step(TURN_USED)
        if self._server.is_busy and not self._is_of_broker():
            self._server.defer(self)
        else:
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if self._server.is_busy and not self._is_of_broker():
            self._server.defer(self)
        else:
            self.begin_turn()

    def begin_turn(self) -> None:
        """Take requests again after the event loop has run other connections."""
        self._step(NEXT_TURN)
        self._serve(in_turn=True)

    def _may_take(self) -> bool:
        if self._is_self_limited():
            return False
        budget, held_bytes = self._server.budget, self._request_bytes + self._response_bytes
        return budget.may_read(self, held_bytes, self._budget_freed)

    def _is_self_limited(self) -> bool:
        """Return True if a limit of this connection prevents the next request. The byte budget is no such limit."""
        blocked = self._intake is not OPEN or self._client_is_slow or self._muting.muted
        return blocked or self._in_flight >= self._in_flight_max

    def _take(self, frame: RequestFrame, session: Session) -> None:
        server = self._server
        session.wake_waiting()
        dispatcher = server.dispatcher
        assert dispatcher is not None
        call = dispatcher.open(frame, session)
        self._in_flight += 1
        server.budget.request_started(self)
        if call.context.charge:
            self._charge(call.context.charge)
        if server.ready or (call.decoding is None and call.api.early(call.request)):
            self._settle(call, dispatcher.handle(call))
        else:
            self._step(HOLD)
            server.waiting[self] = call

    def _charge(self, count: int) -> None:
        if self._intake is CLOSED:
            return  # connection_lost releases what the connection holds
        self._request_bytes += count
        if count < 0:
            self._server.budget.release(-count)
        else:
            self._server.budget.reserve(count)

    def _check_peer(self) -> None:
        if self._intake is not CLOSED and has_ended(self._transport):
            self._end()

    def broker_registered(self, call: Call) -> None:
        """Handle the request that waited until the broker was registered."""
        self._step(RELEASE)
        if self._intake is not CLOSED:
            dispatcher = self._dispatcher
            call = dispatcher.reopen(call)
            self._settle(call, dispatcher.handle(call))
            self._serve()

    def _settle(self, call: Call, result: Any) -> None:
        """Continue with the `result` of a handler, or of its first stage (see `odradek.broker.requests.api`)."""
        while result is not None and not isinstance(result, call.api.response):
            ordered = isinstance(result, Ordered)
            future = future_of(result.awaitable if ordered else result, self._server.tasks)
            if not future.done():
                if ordered:
                    self._step(HOLD)
                self._server.note_waiting(call, self._loop, in_order=ordered)
                future.add_done_callback(partial(self._stage_one_done if ordered else self._stage_two_done, call))
                return
            if self._intake is CLOSED:
                close_unstarted_response(future)
                return
            result = self._dispatcher.result(call, future)
        self._respond(call, result)

    def _stage_one_done(self, call: Call, future: "Future[Any]") -> None:
        self._server.note_complete(call)
        self._step(RELEASE)
        if self._intake is CLOSED:
            close_unstarted_response(future)
            return
        self._settle(call, self._dispatcher.result(call, future))
        self._serve()

    def _stage_two_done(self, call: Call, future: "Future[Any]") -> None:
        self._server.note_complete(call)
        if self._intake is CLOSED:
            close_unstarted_response(future)
            return
        self._respond(call, self._dispatcher.result(call, future))
        self._continue_after_response()

    def _continue_after_response(self) -> None:
        if self._reading is not READ:
            self._serve()
        elif self._planned_flush is None:
            self._planned_flush = self._loop.call_soon(self._run_planned_flush)

    # ---- responses --------------------------------------------------------------------------------------------------

    def _respond(self, call: Call, response: Any) -> None:
        dispatcher = self._dispatcher
        if response is None or (call.frame.is_raw and response.error_code):
            dispatcher.throttle(call, None)
            self._send(call, response, None)  # a refused SASL message without a header has no response, as in Kafka
        elif call.context.encode_in_slices:
            encoded = future_of(dispatcher.encode_in_slices(call, response), self._server.tasks)
            encoded.add_done_callback(partial(self._encoded, call, response))
        else:
            self._encode(call, response)

    def _encoded(self, call: Call, response: Any, future: "Future[Any]") -> None:
        if self._intake is not CLOSED and not future.cancelled():
            self._encode(call, response, future)
            self._continue_after_response()

    def _encode(self, call: Call, response: Any, in_slices: "Future[Any] | None" = None) -> None:
        """Send the response. `in_slices`: the future of its encoding in slices, which is done."""
        try:
            chunks = self._dispatcher.encode(call, response) if in_slices is None else result_of(in_slices)
        except Exception as exception:  # noqa: BLE001  not even a refusal can be encoded
            self._close_for(f"the response cannot be encoded: {exception}")
        else:
            self._send(call, response, chunks)

    def _send(self, call: Call, response: Any, chunks: "list[Buffer] | None") -> None:
        server, frame = self._server, call.frame
        if chunks is None:
            size = 0
            self._core.send_response(frame.seq, None)
        else:
            size = SIZE_PREFIX_BYTES + sum(map(len, chunks))
            self._queued_bytes += size
            self._response_bytes += size
            server.budget.unsent_bytes += size
            server.budget.reserve(size)
            self._core.send_response(frame.seq, chunks)
        self._muting.mute(call.context.throttle_ms)
        self._dispatcher.count(call, response, size)
        self._in_flight -= 1
        released = SIZE_PREFIX_BYTES + frame.size + call.context.charge
        self._request_bytes -= released
        server.budget.request_completed(self)
        server.budget.release(released)
        if call.context.ends_connection:
            self.close()

    def _run_planned_flush(self) -> None:
        self._planned_flush = None
        if self._intake is not CLOSED:
            self._flush()

    def _flush(self) -> None:
        chunks = self._core.data_to_send()
        if not chunks:
            return
        assert self._transport is not None
        self._deadlines.active_s = self._loop.time()
        self._queued_bytes -= sum(map(len, chunks))
        if not self._transport.is_closing():
            self._transport.writelines(chunks)
        self._account_responses()
        timer = self._watch_timer
        if self._response_bytes and timer is not None and timer.when() > self._deadlines.unsent_s:
            timer.cancel()
            self._watch_timer = self._loop.call_at(self._deadlines.unsent_s, self._watch)

    def _account_responses(self) -> None:
        assert self._transport is not None
        held = self._queued_bytes + self._transport.get_write_buffer_size()
        gone, self._response_bytes = self._response_bytes - held, held
        self._server.budget.unsent_bytes -= gone
        self._server.budget.release(gone)

    # ---- limits -----------------------------------------------------------------------------------------------------

    def _frame_bytes_max(self, api_key: int) -> int:
        """Return the maximum size of a request with this API key. It is small until a node has authenticated."""
        session = self._session
        roles = self._listener_of().open_roles if session is None else session.roles
        return frame_bytes_max(self._config, roles, api_key)

    def _update_reading(self) -> None:
        """Pause or resume reading of the transport, according to the limits."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._may_take():
            event = BELOW_LIMITS
        else:
            event = ReadingEvent.SELF_LIMIT if self._is_self_limited() else ReadingEvent.BUDGET
        before = self._reading
        if event is BELOW_LIMITS and before is READ:
            return
        after = self._reading = READING.look_up(before, event)
        if after is before:
            return
        if after is not READ:
            transport.pause_reading()
            return
        if before is Reading.SELF_LIMITED:
            self._deadlines.frame_s = self._loop.time()  # meanwhile the client could not complete the request
        transport.resume_reading()

    def _budget_freed(self) -> None:
        self._loop.call_soon(self._serve)

    def _watch(self) -> None:
        """Close the connection if a deadline has passed; otherwise check again when the next one can have passed.

        A connection of another broker has no idle deadline: the other broker would suspect a failure.
        """
        if self._transport is None or (session := self._session) is None:
            return
        before = self._response_bytes
        if before:  # the transport reports progress only if it had paused the writing
            self._account_responses()
            if self._response_bytes < before:
                self._deadlines.active_s = self._loop.time()
        has_unsent = self._response_bytes > self._queued_bytes
        remaining_s = self._deadlines.remaining_s(
            self._loop.time(),
            # Also while the byte budget is exhausted: incomplete requests must not fill it permanently.
            awaits_frame=(self._core.frame_started or session.awaits_login)
            and self._reading is not Reading.SELF_LIMITED,
            has_unsent=has_unsent,
            is_exhausted=self._server.budget.stops_reading,
            is_idle=(not self._in_flight or has_unsent) and not is_broker(session, session.client_id),
        )
        if remaining_s > 0:
            self._watch_timer = self._loop.call_later(remaining_s, self._watch)
            return
        self._server.log_expired(session, self._loop.time())
        self._end()

    def _end(self) -> None:
        """Close the connection without sending what is ready."""
        self._step(IntakeEvent.CLOSE)
        if self._session is not None:
            self._session.end()
        if self._transport is not None:
            self._transport.abort()

    def _close_malformed(self, error: Malformed) -> None:
        cause = "session expired" if isinstance(error, SessionExpired) else "malformed request"
        self._close_logged(f"connection closed: {cause}", str(error))

    def _close_for(self, reason: str) -> None:
        """Close the connection: the protocol has no response that reports `reason` (a failed Produce with acks=0)."""
        self._close_logged("connection closed: failed request has no response", reason)

    def _log_failed_login(self, error: AuthenticationFailed) -> None:
        session = self._session
        if session is None:
            return
        event, remedy = "authentication failed", ""
        if not session.listener.security_protocol.uses_sasl:
            event = "authentication of a node failed"
            if not session.listener.accepts_secret:
                remedy = "; set odradek.inter.broker.authentication=principal on the other node, as on this one"
            elif not isinstance(error, AnotherNode):
                remedy = "; set cluster.secret.file to the same secret on both nodes"
        self._server.log_refused(event, session, f"{error}{remedy}", self._loop.time())

    def _close_logged(self, event: str, reason: str) -> None:
        session = self._session
        if session is not None and self._intake is not CLOSED:
            self._server.log_refused(event, session, reason, self._loop.time())
            self.close()

    @property
    def _dispatcher(self) -> Dispatcher:
        dispatcher = self._server.dispatcher
        assert dispatcher is not None
        return dispatcher
