"""From a request frame to a handler, and from what it answers to bytes.

Knows rows, versions and error codes; nothing of sockets and nothing of any API.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from odradek.broker.dispatch.request_metrics import api_metrics
from odradek.broker.dispatch.services import Services
from odradek.broker.requests.api import AnyApi, RequestContext
from odradek.broker.requests.error_map import wire_error
from odradek.broker.requests.session import Session
from odradek.protocol.codec import decode_prefix, encode_response
from odradek.protocol.connection import RequestFrame
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.schema import Buffer

API_VERSIONS_KEY: Final = ApiVersionsRequest.API_KEY
_logger = structlog.get_logger("broker.dispatch")


@dataclass(slots=True)
class Call:
    """One request that has been handed to its handler."""

    api: AnyApi
    context: RequestContext
    request: Any
    frame: RequestFrame
    began_us: int


class Dispatcher:
    def __init__(
        self,
        table: tuple[AnyApi, ...],
        services: Services,
        on_unexpected: Callable[[str, BaseException], None] | None = None,
    ) -> None:
        """`on_unexpected(where, exception)` hears of every exception that no handler should have raised."""
        self._rows = {api.key: api for api in table}
        self.services = services
        self.metrics = api_metrics(table)
        self._on_unexpected = on_unexpected or log_unexpected

    def open(self, frame: RequestFrame, session: Session) -> Call:
        """The call that `frame` asks for.

        Raises `Malformed` where the connection has to be closed: an API or version that is not served here, or a body
        that does not begin with its request.
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
            # Bytes behind the message are not looked at, as in Kafka: librdkafka asks for all topics (Metadata v9 on) with
            # a null array of four bytes, of which one is read, and three fields later three bytes are left.
            request, _ = decode_prefix(api.request, version, frame.body)
        elif frame.api_key != API_VERSIONS_KEY:
            raise Malformed(f"{api.name} version {version} is not served")
        services = self.services
        session.client_id = frame.client_id
        context = RequestContext(
            frame.api_key,
            version,
            frame.correlation_id,
            frame.client_id,
            session,
            services,
            services.clock.wall_ms(),
            frame.size,
        )
        return Call(api, context, request, frame, services.clock.monotonic_us())

    def handle(self, call: Call) -> Any:
        """What the handler returns (see `odradek.broker.requests.api`); what it raises has become a response."""
        try:
            if call.request is None:
                # ApiVersions of a version from the future: a v0 body that names what there is (KIP-511).
                call.context.api_version = 0
                return call.api.refuse(call.context, None, ErrorCode.UNSUPPORTED_VERSION, None)
            if call.api.forward and not self.services.controller.is_active:
                context, session = call.context, call.context.session
                return self.services.forwarding.forward(
                    call.request, context.api_version, context.client_id, session.principal, session.client_host
                )
            if self.services.quotas.measure_time:
                return self._timed(call)
            return call.api.handle(call.context, call.request)
        except Exception as exception:  # noqa: BLE001  the one boundary at which any exception becomes an answer
            return self.refused(call, exception)

    def _timed(self, call: Call) -> Any:
        """Stage one, with its time on the loop."""
        clock = self.services.clock
        began_us = clock.monotonic_us()
        try:
            return call.api.handle(call.context, call.request)
        finally:
            call.context.busy_us += clock.monotonic_us() - began_us

    def refused(self, call: Call, exception: BaseException) -> Any:
        """The response (or None) that says what `exception` means to the client."""
        context = call.context
        if isinstance(exception, Refusal):
            error, message = wire_error(context.api_key, context.api_version, exception.error), exception.message
        else:
            self._on_unexpected(call.api.name, exception)
            error, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
        return call.api.refuse(context, call.request, error, message)

    def throttle(self, call: Call, response: Any) -> None:
        """Count the request against the quotas: `throttle_ms` of its context, and of its response, say what follows.

        A controller that was asked on behalf of the client may have said so already.
        """
        context = call.context
        said_ms = getattr(response, "throttle_time_ms", 0)
        throttle_ms = self.services.quotas.throttle_ms(context, response)
        context.throttle_ms = max(said_ms, throttle_ms)
        if throttle_ms > max(said_ms, 0) and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms

    def count(self, call: Call, response: Any, size: int) -> None:
        """The call is answered, in so many bytes."""
        took_us = self.services.clock.monotonic_us() - call.began_us
        self.metrics[call.api.key].answered(response, bytes_in=call.frame.size, bytes_out=size, us=took_us)

    def encode(self, call: Call, response: Any) -> list[Buffer]:
        """Header and body as buffers, without the size prefix."""
        context = call.context
        self.throttle(call, response)
        try:
            return encode_response(context.api_key, context.api_version, context.correlation_id, response)
        except Exception as exception:  # noqa: BLE001  a response that does not fit its version is a bug of its handler
            instead = self.refused(call, exception)
            return encode_response(context.api_key, context.api_version, context.correlation_id, instead)


def log_unexpected(where: str, exception: BaseException) -> None:
    _logger.error("an unexpected exception was answered with UNKNOWN_SERVER_ERROR", where=where, exc_info=exception)
