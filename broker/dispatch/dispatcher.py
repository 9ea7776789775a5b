"""Decode a request, run its handler, and encode the response.

The dispatcher uses the rows of the API table. It contains nothing about sockets or about a particular API.
"""

from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import structlog

from odradek.broker.contexts import BrokerContext, NodeContext, QuorumContext, QuorumRequestContext
from odradek.broker.dispatch.large_requests import IMMEDIATE_CHARGE_BYTES_MAX, LargeRequests
from odradek.broker.dispatch.request_limits import SASL_APIS, charge_bytes_max
from odradek.broker.dispatch.request_metrics import ApiMetrics
from odradek.broker.process.unexpected import Unexpected
from odradek.broker.quorum.forwarding import Forwarding
from odradek.broker.requests.api import AnyApi, Embedded, Ordered, Remainder, Routing
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.error_map import wire_error
from odradek.broker.requests.futures import Failure
from odradek.broker.requests.joining import JoinedResponse
from odradek.broker.requests.large_work import LargeWork, RequestDropped
from odradek.broker.requests.listener import UNAUTHENTICATED
from odradek.broker.requests.session import Session
from odradek.broker.requests.session_login import SessionExpired
from odradek.broker.requests.splitting import Splitting
from odradek.client_shares import CLIENT_ID_CHARACTERS_MAX
from odradek.cluster.controller.slices import RECORDS_PER_REQUEST_MAX, too_large
from odradek.protocol.codec import API_VERSIONS_KEY, SlicedDecoding, SlicedEncoding, decode_charged, encode_response
from odradek.protocol.connection import RequestFrame
from odradek.protocol.errors import ChargeExceeded, ErrorCode, Malformed, Refusal
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.schema import Buffer

if TYPE_CHECKING:
    from asyncio import Future

_logger = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Call:
    """A request, with its context and the row of its API."""

    api: AnyApi
    context: QuorumRequestContext
    request: Any
    """The decoded message. None if the version is not served, or while a large request is not decoded."""
    frame: RequestFrame
    began_us: int
    decoding: SlicedDecoding[Any] | None = None
    """Decoding of a large request, which `Dispatcher.handle` runs."""
    forwarded: bool = False
    """True if the active controller, which is another node, handles the request."""


Contexts = tuple[NodeContext, QuorumContext] | tuple[NodeContext, QuorumContext, BrokerContext]


class Dispatcher:
    """Dispatch requests in one phase of the node: before or after its broker is registered."""

    def __init__(
        self,
        table: Sequence[AnyApi],
        context_class: type[QuorumRequestContext],
        contexts: Contexts,
        *,
        forwarding: Forwarding,
        metrics: Mapping[int, ApiMetrics],
        large_requests: LargeRequests,
        on_unexpected: Unexpected,
    ) -> None:
        """Serve the APIs of `table`. Request contexts have the class `context_class` and carry `contexts`."""
        node, quorum = contexts[0], contexts[1]
        self.metrics = metrics
        self._rows = {api.key: api for api in table}
        self._authorizer = node.authorizer
        self._audit = node.audit
        self._clock = node.clock
        self._quotas = node.quotas
        self._controller = quorum.controller
        self._context_class = context_class
        self._contexts: tuple[Any, ...] = contexts
        self._forwarding = forwarding
        self._large_requests = large_requests
        self._on_unexpected = on_unexpected

    def now_us(self) -> int:
        """Return the monotonic time of the node, in microseconds."""
        return self._clock.monotonic_us()

    def begin_large(self, context: RequestContext) -> AbstractContextManager[LargeWork]:
        """Begin work on the large request of `context`, or continue it (`LargeRequests.begin`)."""
        return self._large_requests.begin(context)

    async def next_turn(self, session: Session) -> None:
        """Wait for the next turn of a request in slices (`LargeRequests.next_turn`)."""
        await self._large_requests.next_turn(session)

    def open(self, frame: RequestFrame, session: Session) -> Call:
        """Decode the request in `frame`, or prepare the decoding of a large request.

        Raise Malformed if the API or its version is not served on this listener, or if the body cannot be decoded. The
        connection must then be closed.
        """
        expires_ms = session.login.expires_ms
        if expires_ms is not None and frame.api_key not in SASL_APIS and self._clock.monotonic_ms() >= expires_ms:
            self._contexts[0].authentication.expired(session)
            raise SessionExpired("the client did not authenticate again")
        return self._open(frame, session)

    def _open(self, frame: RequestFrame, session: Session) -> Call:
        """Decode the request in `frame` like `open`, also if the session has expired since its arrival."""
        api = self._rows.get(frame.api_key)
        if api is None:
            raise Malformed(f"API key {frame.api_key} is not served")
        clock = self._clock
        roles = session.roles
        for role in api.listeners:
            if role in roles:
                break
        else:
            text = f"{api.name} is not served on listener {session.listener.name}, which is for {roles[0]}s"
            remedy = ""
            if session.awaits_login:
                text = f"{api.name} is not served on listener {session.listener.name} before a SASL login"
            elif session.listener.nodes is not None and not session.authenticated:
                remedy = "; add the principal of a node to odradek.node.principals, or allow it CLUSTER_ACTION"
            elif UNAUTHENTICATED in roles:
                remedy = "; a node of the cluster needs cluster.secret.file"
            elif api.key in SASL_APIS and not session.authenticated:
                remedy = "; to authenticate nodes of the cluster, set cluster.secret.file on this node"
            raise Malformed(text + remedy)
        if frame.api_key == API_VERSIONS_KEY and session.awaits_login:
            session.login.count_versions()
        version = frame.api_version
        request: Any = None
        decoding: SlicedDecoding[Any] | None = None
        charge = 0
        if frame.is_raw:
            request = SaslAuthenticateRequest(frame.body)
        elif api.serves(version):
            # Bytes after the message are ignored, as in Kafka. librdkafka requests all topics (Metadata v9 and later)
            # with a null array of four bytes; the decoder reads one of them, so three bytes remain after the message.
            try:
                request, charge = decode_charged(api.request, version, frame.body, IMMEDIATE_CHARGE_BYTES_MAX)
            except ChargeExceeded:
                limit = charge_bytes_max(frame.api_key, frame.size)
                decoding = SlicedDecoding(api.request, version, frame.body, limit)
        elif frame.api_key != API_VERSIONS_KEY:
            raise Malformed(f"{api.name} version {version} is not served")
        client_id = session.client_id if frame.is_raw else frame.client_id
        if client_id is not None and len(client_id) > CLIENT_ID_CHARACTERS_MAX:
            client_id = client_id[:CLIENT_ID_CHARACTERS_MAX]  # the session and metrics keep it
        session.client_id = client_id
        context = self._context_class(
            frame.api_key,
            version,
            frame.correlation_id,
            client_id,
            session,
            self._authorizer,
            clock.wall_ms(),
            frame.size,
            *self._contexts,
        )
        context.audit = self._audit
        if charge:
            context.charge = charge
        return Call(api, context, request, frame, clock.monotonic_us(), decoding)

    def reopen(self, call: Call) -> Call:
        """Decode the request of `call` again: it waited in the earlier phase and is handled in this one."""
        reopened = self._open(call.frame, call.context.session)
        reopened.began_us = call.began_us
        return reopened

    def handle(self, call: Call) -> Any:
        """Run the handler and return its result, or the response that reports its exception.

        `odradek.broker.requests.api` lists the possible results.
        """
        try:
            if call.decoding is not None:
                return Ordered(self._handle_large(call, call.decoding))
            if call.request is None:
                # ApiVersions in an unknown version: the response is a v0 body with the supported versions (KIP-511).
                call.context.api_version = 0
                return call.api.refuse(call.context, None, ErrorCode.UNSUPPORTED_VERSION, None)
            if call.api.routing:
                return self._route(call)
            if call.context.charge >= call.api.parts_charge_bytes_min and (splitting := _splitting(call)) is not None:
                return Ordered(self._handle_parts(call, splitting))
            if self._quotas.measure_time:
                return self._timed(call, call.request)
            return call.api.handle(call.context, call.request)
        except Exception as exception:  # noqa: BLE001  the one boundary at which any exception becomes a response
            return self.refused(call, exception)

    async def _handle_large(self, call: Call, decoding: SlicedDecoding[Any]) -> Any:
        """Decode the request in slices, then run the handler. Close the connection if the request is malformed.

        If the connection closes first, drop the request: it has left the byte budget.
        """
        try:
            with self._large_requests.begin(call.context) as work:
                await self._decode_large(call, decoding, work)
                splitting = None if call.api.routing else _splitting(call)
                if splitting is not None:
                    return await self._in_parts(call, splitting, work)
            if call.api.routing is Routing.CONTROLLER:
                return await self._handle_whole(call)
        except RequestDropped:
            return None
        except Malformed as error:
            call.context.session.close(str(error))
            return None
        result = self.handle(call)
        while isinstance(result, Ordered):
            result = await result.awaitable
        return result

    async def _handle_parts(self, call: Call, splitting: Splitting) -> Any:
        """Handle a large request in parts. If the connection closes, drop the parts that remain."""
        try:
            with self._large_requests.begin(call.context) as work:
                return await self._in_parts(call, splitting, work)
        except RequestDropped:
            return None

    async def _in_parts(self, call: Call, splitting: Splitting, work: LargeWork) -> Any:
        """Handle a large request in parts, and return the joined response. An exception concerns only its part."""
        call.context.encode_in_slices = True
        if call.api.combine is not None:
            for _ in call.api.combine(call.request):
                await work.turn()
        joined = JoinedResponse(splitting, call.api.response)
        for part, shared in splitting.parts(call.request):
            await work.turn()
            try:
                result: Any = self._timed(call, part)
                while not (result is None or isinstance(result, call.api.response)):
                    result = await (result.awaitable if isinstance(result, Ordered) else result)
            except RequestDropped:
                raise
            except Exception as exception:  # noqa: BLE001  earlier parts may have been applied
                result = self.refused(replace(call, request=part), exception)
            if result is not None:
                await joined.add(result, shared, work)
        return joined.response

    async def _handle_whole(self, call: Call) -> Any:
        """Handle a large request for the controller in one piece; if it is refused, make the response in parts.

        The connection handles no later request before the response, so the controller keeps their order.
        """
        call.context.encode_in_slices = True
        splitting = _splitting(call)
        try:
            result: Any = self._route(call)
            while isinstance(result, Ordered):
                result = await result.awaitable
            return await result if isawaitable(result) else result
        except RequestDropped:
            raise
        except Exception as exception:  # noqa: BLE001  as in `handle`
            return await self._refused_in_parts(call, splitting, exception)

    async def _refused_in_parts(self, call: Call, splitting: Splitting | None, exception: Exception) -> Any:
        """Like `refused`, with turns of the event loop between parts of the response."""
        if splitting is None:
            return self.refused(call, exception)
        if not isinstance(exception, Refusal):
            self._on_unexpected(call.api.name, exception)
            exception = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
        joined = JoinedResponse(splitting, call.api.response)
        with self._large_requests.begin(call.context) as work:
            for part, shared in splitting.parts(call.request):
                await work.turn()
                await joined.add(self.refused(replace(call, request=part), exception), shared, work)
        return joined.response

    async def _decode_large(self, call: Call, decoding: SlicedDecoding[Any], work: LargeWork) -> None:
        try:
            await work.decode(decoding)
        except ChargeExceeded as exceeded:
            raise Malformed(
                f"{call.api.name} of {call.frame.size} bytes needs more than"
                f" {charge_bytes_max(call.api.key, call.frame.size)} bytes for its elements; send smaller requests"
            ) from exceeded
        call.request, call.decoding = decoding.message, None

    def _route(self, call: Call) -> Any:
        if call.api.check is not None and not call.context.session.is_forwarded:
            check = call.api.check(call.context, call.request)
            if check is not None:
                return Ordered(self._route_after(call, check))
        return self._route_checked(call)

    async def _route_after(self, call: Call, check: Awaitable[Remainder | None]) -> Any:
        remainder = await check
        if remainder is None:
            return self._route_checked(call)
        whole, call.request = call.request, remainder.request
        try:
            response = self._route_checked(call)
            while not isinstance(response, call.api.response):
                response = await (response.awaitable if isinstance(response, Ordered) else response)
        except Exception:
            call.request = whole  # the response that reports the exception names all elements
            raise
        remainder.complete(response)
        return response

    def _route_checked(self, call: Call) -> Any:
        context, session = call.context, call.context.session
        if call.api.routing is Routing.CONTROLLER:
            elements = call.api.elements
            if elements is not None and elements(call.request) > RECORDS_PER_REQUEST_MAX:
                raise too_large()
            if not self._controller.is_active:
                call.forwarded = True
                return self._forwarding.forward(
                    call.request, context.api_version, context.client_id, session.principal, session.client_host
                )
        result = (
            self._timed(call, call.request) if self._quotas.measure_time else call.api.handle(context, call.request)
        )
        return self._dispatch_embedded(result) if isinstance(result, Embedded) else result

    def _dispatch_embedded(self, embedded: Embedded[Any]) -> Any:
        try:
            call = self.open(embedded.frame, embedded.session)
        except Malformed as error:
            raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from error
        if call.api.routing is not Routing.CONTROLLER:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{call.api.name} requests are not forwarded to the controller")
        if call.decoding is not None:
            return self._embedded_large(embedded, call, call.decoding)
        result = self.handle(call)
        if isinstance(result, Ordered):
            return Ordered(self._wrap_later(embedded, call, result.awaitable))
        return self._wrap_later(embedded, call, result) if isawaitable(result) else self._wrap(embedded, call, result)

    async def _embedded_large(self, embedded: Embedded[Any], call: Call, decoding: SlicedDecoding[Any]) -> Any:
        try:
            with self._large_requests.begin(call.context) as work:
                await self._decode_large(call, decoding, work)
        except Malformed as error:
            raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from error
        result = await self._handle_whole(call)
        return embedded.wrap(b"".join(await self.encode_in_slices(call, result)))

    async def _wrap_later(self, embedded: Embedded[Any], call: Call, response: Awaitable[Any]) -> Any:
        try:
            result = await response
            while not isinstance(result, call.api.response):
                result = await (result.awaitable if isinstance(result, Ordered) else result)
        except Exception as exception:  # noqa: BLE001  the inner response reports what failed in the inner request
            result = self.refused(call, exception)
        return self._wrap(embedded, call, result)

    def _wrap(self, embedded: Embedded[Any], call: Call, result: Any) -> Any:
        return embedded.wrap(b"".join(self.encode(call, result)))

    def _timed(self, call: Call, request: Any) -> Any:
        """Run stage one of the handler on `request`, and measure its time on the event loop."""
        clock = self._clock
        began_us = clock.monotonic_us()
        try:
            return call.api.handle(call.context, request)
        finally:
            call.context.busy_us += clock.monotonic_us() - began_us

    def result(self, call: Call, future: "Future[Any]") -> Any:
        """Return the result of `future`, which is done; or the response that reports its exception."""
        if future.cancelled():
            return self.refused(call, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "cancelled"))
        exception = future.exception()
        if exception is None:
            result = future.result()
            if not isinstance(result, Failure):
                return result
            exception = result.exception
        return self.refused(call, exception)

    def refused(self, call: Call, exception: BaseException) -> Any:
        """Return the response that reports `exception` to the client; None if the protocol has no such response."""
        context = call.context
        if isinstance(exception, Refusal):
            error, message = wire_error(context.api_key, context.api_version, exception.error), exception.message
        else:
            self._on_unexpected(call.api.name, exception)
            error, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
        if call.decoding is not None:
            # The node stops while it decodes the request in slices. A response would have to name its elements.
            context.session.close("the request was not decoded")
            return None
        return call.api.refuse(context, call.request, error, message)

    def throttle(self, call: Call, response: Any) -> None:
        """Count the request against the quotas; set the throttle time of its context and of its response.

        The response to a forwarded request may carry the controller's throttle time already. The longer one counts.
        """
        context = call.context
        set_ms = getattr(response, "throttle_time_ms", 0)
        throttle_ms = self._quotas.throttle_ms(context, response)
        context.throttle_ms = max(set_ms, throttle_ms)
        if throttle_ms > max(set_ms, 0) and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms

    def count(self, call: Call, response: Any, size: int) -> None:
        """Count the response of `call`, which has `size` bytes, in the metrics."""
        took_us = self._clock.monotonic_us() - call.began_us
        self.metrics[call.api.key].count_response(response, bytes_in=call.frame.size, bytes_out=size, us=took_us)

    def encode(self, call: Call, response: Any) -> list[Buffer]:
        """Return header and body as buffers, without the size prefix.

        The response to a SASL message without a header is a SASL message without a header.
        """
        context = call.context
        self.throttle(call, response)
        if call.frame.is_raw:
            return [response.auth_bytes]
        try:
            return encode_response(context.api_key, context.api_version, context.correlation_id, response)
        except Exception as exception:  # noqa: BLE001  a response that its version cannot encode is a bug of the handler
            instead = self.refused(call, exception)
            return encode_response(context.api_key, context.api_version, context.correlation_id, instead)

    async def encode_in_slices(self, call: Call, response: Any) -> list[Buffer]:
        """Like `encode`, with turns of the event loop between slices of the response."""
        context = call.context
        self.throttle(call, response)
        encoding = SlicedEncoding(context.api_key, context.api_version, context.correlation_id, response)
        try:
            while not encoding.run_slice():
                await context.session.next_turn()
        except Exception as exception:  # noqa: BLE001  a response that its version cannot encode is a bug of the handler
            instead = self.refused(call, exception)
            return encode_response(context.api_key, context.api_version, context.correlation_id, instead)
        return encoding.chunks


def _splitting(call: Call) -> Splitting | None:
    """Return how the request of `call` is split; None if it is handled in one piece."""
    splitting = call.api.splitting(call.context.api_version)
    return splitting if splitting is not None and splitting.is_large(call.request) else None
