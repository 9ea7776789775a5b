"""Forward requests for the active controller to the node that has it, in an Envelope (KIP-590).

An Envelope contains the request with its header, and the principal and address of the client. Only the active
controller accepts an Envelope, so a request is forwarded at most once.
"""

from asyncio import Future, get_running_loop, sleep
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any, Final

import structlog

from odradek.broker.quorum.peers import Channel, Peers
from odradek.cluster.authorizer import Principal
from odradek.cluster.raft.messages import NO_NODE
from odradek.protocol.codec import decode, decode_prefix, encode, request_header_version, response_header_version
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.messages import response_class
from odradek.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from odradek.protocol.messages.headers import RequestHeader, ResponseHeader
from odradek.protocol.schema import Buffer, Message

_logger = structlog.get_logger(__name__)

ENVELOPE_VERSION: Final = 0
RETRY_BACKOFF_MS: Final = 50
"""Milliseconds between two attempts to find the active controller."""
FORWARDING_MS_MAX: Final = 60_000
"""Maximum milliseconds to wait for a controller, whatever time limit the client sets. Kafka has the same limit. All
clients share one connection to the controller, so one of them must not block it for days."""
GRACE_MS: Final = 1_000
"""Milliseconds to wait for a response beyond the time limit of the request, for its way through the network."""


class Forwarding:
    """Send requests to the active controller on another node."""

    def __init__(self, leader_id: Callable[[], int], peers: Peers, *, request_timeout_ms: int) -> None:
        """`leader_id()` returns the leader of the metadata log that this node knows, or NO_NODE."""
        self._leader_id = leader_id
        self._peers = peers
        self._request_timeout_ms = request_timeout_ms

    def forward(
        self, request: Message, version: int, client_id: str | None, principal: Principal, client_host: str
    ) -> Awaitable[Any]:
        """Return the controller's response to a client's request. Raise Refusal(NOT_CONTROLLER, REQUEST_TIMED_OUT).

        A response with the error NOT_CONTROLLER goes to the client, which sends its request again.
        """
        client_ms = min(getattr(request, "timeout_ms", 0), FORWARDING_MS_MAX)
        limit_ms = max(client_ms, self._request_timeout_ms) + GRACE_MS
        name = f"{principal.kind}:{principal.name}".encode()
        return self._send_with_retries(request, version, client_id, name, _packed(client_host), limit_ms)

    async def request(self, request: Message, version: int, *, timeout_ms: int) -> Any:
        """Return the active controller's response to a request of this broker itself.

        Raise Refusal(NOT_CONTROLLER, REQUEST_TIMED_OUT).
        """
        return await self._send_with_retries(
            request, version, self._peers.client_id(Channel.CONTROLLER), b"", b"", timeout_ms + GRACE_MS
        )

    async def _send_with_retries(
        self, request: Message, version: int, client_id: str | None, principal: bytes, host: bytes, limit_ms: int
    ) -> Any:
        """Repeat the request until an active controller accepts it, or until `limit_ms` is over, as Kafka does.

        No attempt has less than GRACE_MS for its response. A request that times out closes the connection to the
        controller, and the requests of other clients on it are sent again.
        """
        api_key = request.API_KEY
        header = RequestHeader(api_key, version, 0, client_id)
        data = encode(header, request_header_version(api_key, version)) + encode(request, version)
        envelope = EnvelopeRequest(data, principal, host)
        loop = get_running_loop()
        deadline_s = loop.time() + limit_ms / 1_000
        while True:
            left_ms = int((deadline_s - loop.time()) * 1_000)
            try:
                response = await self._send(envelope, left_ms)
            except Refusal as refusal:
                if refusal.error is not ErrorCode.NOT_CONTROLLER or left_ms - RETRY_BACKOFF_MS < GRACE_MS:
                    raise
                await sleep(RETRY_BACKOFF_MS / 1_000)
            else:
                return _decode_response(response, api_key, version)

    async def _send(self, envelope: EnvelopeRequest, timeout_ms: int) -> Buffer:
        leader = self._leader_id()
        if leader == NO_NODE:
            raise Refusal(ErrorCode.NOT_CONTROLLER, "no controller is known")
        future: Future[EnvelopeResponse] = self._peers.request(
            leader, Channel.CONTROLLER, envelope, ENVELOPE_VERSION, timeout_ms=timeout_ms
        )
        try:
            response = await future
        except TimeoutError as error:
            raise Refusal(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
        except OSError as error:
            raise Refusal(ErrorCode.NOT_CONTROLLER, str(error)) from error
        if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            _logger.error(
                "forwarding denied by the controller",
                controller=leader,
                remedy="set cluster.secret.file on each node, or add the nodes' principals to super.users",
            )
            raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "The broker may not forward requests to the controller.")
        if response.error_code or response.response_data is None:
            raise Refusal(ErrorCode(response.error_code))
        return response.response_data


def _packed(host: str) -> bytes:
    """Return the bytes of an IP address, as in an Envelope; empty if the transport gives a name instead."""
    try:
        return ip_address(host).packed
    except ValueError:
        return b""


def _decode_response(data: Buffer, api_key: int, version: int) -> Any:
    body = memoryview(data)
    try:
        _, position = decode_prefix(ResponseHeader, response_header_version(api_key, version), body)
        return decode(response_class(api_key), version, body[position:])
    except Malformed as error:
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller's response is malformed: {error}") from error
