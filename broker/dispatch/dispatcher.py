"""Decode a request, run its handler, and encode the response.

The dispatcher uses the rows of the API table. It contains nothing about sockets or about a particular API.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import structlog

from odradek.broker.contexts import BrokerContext, NodeContext, QuorumContext, QuorumRequestContext
from odradek.broker.dispatch.request_metrics import ApiMetrics
from odradek.broker.quorum.forwarding import Forwarding
from odradek.broker.requests.api import AnyApi, Embedded, Routing
from odradek.broker.requests.error_map import wire_error
from odradek.broker.requests.futures import Failure
from odradek.broker.requests.session import Session
from odradek.protocol.codec import API_VERSIONS_KEY, decode_prefix, encode_response
from odradek.protocol.connection import RequestFrame
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.schema import Buffer

if TYPE_CHECKING:
    from asyncio import Future

_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class Call:
    """A request that was decoded, with its context and the row of its API."""

    api: AnyApi
    context: QuorumRequestContext
    request: Any
    frame: RequestFrame
    began_us: int


Unexpected = Callable[[str, BaseException], None]
"""Receives an exception that is a bug, and where it was raised: the name of an API or of a task."""

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
        on_unexpected: Unexpected,
    ) -> None:
        """Serve the APIs of `table`. Request contexts have the class `context_class` and carry `contexts`."""
        node, quorum = contexts[0], contexts[1]
        self.metrics = metrics
        self._rows = {api.key: api for api in table}
        self._authorizer = node.authorizer
        self._clock = node.clock
        self._quotas = node.quotas
        self._controller = quorum.controller
        self._context_class = context_class
        self._contexts: tuple[Any, ...] = contexts
        self._forwarding = forwarding
        self._on_unexpected = on_unexpected

    def open(self, frame: RequestFrame, session: Session) -> Call:
        """Decode the request in `frame`.

        Raise Malformed if the API or its version is not served on this listener, or if the body cannot be decoded. The
        connection must then be closed.
        """
        api = self._rows.get(frame.api_key)
        if api is None:
            raise Malformed(f"API key {frame.api_key} is not served")
        roles = session.listener.roles
        for role in api.listeners:
            if role in roles:
                break
        else:
            raise Malformed(f"{api.name} is not served on listener {session.listener.name}, which is for {roles[0]}s")
        version = frame.api_version
        request: Any = None
        if api.serves(version):
            # Bytes after the message are ignored, as in Kafka. librdkafka requests all topics (Metadata v9 and later)
            # with a null array of four bytes; the decoder reads one of them, so three bytes remain after the message.
            request, _ = decode_prefix(api.request, version, frame.body)
        elif frame.api_key != API_VERSIONS_KEY:
            raise Malformed(f"{api.name} version {version} is not served")
        session.client_id = frame.client_id
        clock = self._clock
        context = self._context_class(
            frame.api_key,
            version,
            frame.correlation_id,
            frame.client_id,
            session,
            self._authorizer,
            clock.wall_ms(),
            frame.size,
            *self._contexts,
        )
        return Call(api, context, request, frame, clock.monotonic_us())

    def reopen(self, call: Call) -> Call:
        """Decode the request of `call` again: it waited in the earlier phase and is handled in this one."""
        reopened = self.open(call.frame, call.context.session)
        reopened.began_us = call.began_us
        return reopened

    def handle(self, call: Call) -> Any:
        """Run the handler and return its result, or the response that reports its exception.

        `odradek.broker.requests.api` lists the possible results.
        """
        try:
            if call.request is None:
                # ApiVersions in an unknown version: the response is a v0 body with the supported versions (KIP-511).
                call.context.api_version = 0
                return call.api.refuse(call.context, None, ErrorCode.UNSUPPORTED_VERSION, None)
            if call.api.routing:
                return self._route(call)
            if self._quotas.measure_time:
                return self._timed(call)
            return call.api.handle(call.context, call.request)
        except Exception as exception:  # noqa: BLE001  the one boundary at which any exception becomes a response
            return self.refused(call, exception)

    def _route(self, call: Call) -> Any:
        context, session = call.context, call.context.session
        if call.api.routing is Routing.CONTROLLER and not self._controller.is_active:
            return self._forwarding.forward(
                call.request, context.api_version, context.client_id, session.principal, session.client_host
            )
        result = self._timed(call) if self._quotas.measure_time else call.api.handle(context, call.request)
        return self._dispatch_embedded(result) if isinstance(result, Embedded) else result

    def _dispatch_embedded(self, embedded: Embedded[Any]) -> Any:
        try:
            call = self.open(embedded.frame, embedded.session)
        except Malformed as error:
            raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from error
        if call.api.routing is not Routing.CONTROLLER:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{call.api.name} requests are not forwarded to the controller")
        result = self.handle(call)
        return self._wrap_later(embedded, call, result) if isawaitable(result) else self._wrap(embedded, call, result)

    async def _wrap_later(self, embedded: Embedded[Any], call: Call, response: Awaitable[Any]) -> Any:
        try:
            result = await response
        except Exception as exception:  # noqa: BLE001  the inner response reports what failed in the inner request
            result = self.refused(call, exception)
        return self._wrap(embedded, call, result)

    def _wrap(self, embedded: Embedded[Any], call: Call, result: Any) -> Any:
        return embedded.wrap(b"".join(self.encode(call, result)))

    def _timed(self, call: Call) -> Any:
        """Run stage one of the handler and measure its time on the event loop."""
        clock = self._clock
        began_us = clock.monotonic_us()
        try:
            return call.api.handle(call.context, call.request)
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
        """Return header and body as buffers, without the size prefix."""
        context = call.context
        self.throttle(call, response)
        try:
            return encode_response(context.api_key, context.api_version, context.correlation_id, response)
        except Exception as exception:  # noqa: BLE001  a response that its version cannot encode is a bug of the handler
            instead = self.refused(call, exception)
            return encode_response(context.api_key, context.api_version, context.correlation_id, instead)


def log_unexpected(where: str, exception: BaseException) -> None:
    """Log an exception that is a bug: its traceback, and `where` (an API or a task) it was raised."""
    _logger.error("unexpected exception in a request handler", where=where, exc_info=exception)
