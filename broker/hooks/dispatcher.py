"""Dispatcher that requests a decision of the tests on watched requests, and carries it out.

=================  ==================================================================================================
action             effect
=================  ==================================================================================================
error              Respond with the error code `code`. With `executed`, handle the request before.
delay              Handle the request after `ms` milliseconds. Later requests of the connection wait, too.
disconnect_before  Close the connection, and do not handle the request.
disconnect_after   Handle the request, and close the connection in place of the response.
drop_request       Do not handle the request, and send no response. Later responses of the connection wait.
drop_response      Handle the request, and send no response. Later responses of the connection wait.
respond            Do not handle the request. Send `response`, which is encoded and in base64.
rewrite            Handle the request, and send what the tests return for its response, by the number `rewrite`.
=================  ==================================================================================================

A request that another broker has forwarded was decided on there.
"""

from asyncio import Future, get_running_loop, sleep
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from odradek.broker.dispatch.dispatcher import Call, Dispatcher
from odradek.broker.hooks.channel import HookChannel
from odradek.broker.hooks.facts import as_json, names_in, partitions_in
from odradek.broker.quorum.peers import is_broker
from odradek.broker.requests.api import Ordered
from odradek.broker.requests.session import Session
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.contexts import NodeContext

MS: Final = 1_000
REASON: Final = "injected by a test"
"""Error message of injected errors, and reason of injected disconnects in the log."""
REWRITTEN_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum bytes of a response that the tests rewrite. Each makes two messages of JSON, a third larger."""


class HookedDispatcher(Dispatcher):
    """Dispatcher of a broker that was started for tests."""

    def __init__(self, channel: HookChannel, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._channel = channel

    def handle(self, call: Call) -> Any:
        session = call.context.session
        if call.request is None or session.is_forwarded:
            return super().handle(call)
        of_broker = is_broker(session, call.context.client_id)
        if not self._channel.watches(call.api.key, of_broker=of_broker):
            return super().handle(call)
        return Ordered(self._decided(call, of_broker=of_broker))

    async def _decided(self, call: Call, *, of_broker: bool) -> Any:
        action = await self._channel.decide(self._description(call, of_broker=of_broker))
        if action is None:
            return super().handle(call)
        match action["kind"]:
            case "error":
                if action["executed"]:
                    await self._executed(call)
                return call.api.refuse(call.context, call.request, ErrorCode(action["code"]), REASON)
            case "delay":
                await sleep(action["ms"] / MS)
                return super().handle(call)
            case "disconnect_before":
                call.context.session.close(REASON)
                return None
            case "disconnect_after":
                await self._executed(call)
                call.context.session.close(REASON)
                return None
            case "drop_request":
                return _without_response(call.context.session)
            case "drop_response":
                await self._executed(call)
                return _without_response(call.context.session)
            case "respond":
                return _decoded(call, action)
            case "rewrite":
                return await self._rewritten(call, action["rewrite"])
        raise AssertionError(f"action {action} is unknown")

    async def _executed(self, call: Call) -> Any:
        """Handle the request completely, and return the response that would be sent."""
        result = super().handle(call)
        while not (result is None or isinstance(result, call.api.response)):
            result = await (result.awaitable if isinstance(result, Ordered) else result)
        return result

    async def _rewritten(self, call: Call, number: int) -> Any:
        response = await self._executed(call)
        if response is None:
            return None
        data = encode(response, call.context.api_version)
        if len(data) > REWRITTEN_BYTES_MAX:
            return response
        action = await self._channel.rewrite(number, b64encode(data).decode())
        return response if action is None else _decoded(call, action)

    def _description(self, call: Call, *, of_broker: bool) -> Mapping[str, Any]:
        node: NodeContext = self._contexts[0]

        def name_of(topic_id: UUID) -> str | None:
            topic = node.metadata.image.topic_by_id(topic_id)
            return None if topic is None else topic.name

        return {
            "api": call.api.name,
            "api_key": call.api.key,
            "version": call.context.api_version,
            "client_id": call.context.client_id or "",
            "of_broker": of_broker,
            **names_in(call.request, name_of),
            "partitions": partitions_in(call.request, name_of),
            "fields": as_json(call.request),
        }


def _decoded(call: Call, action: Mapping[str, Any]) -> Any:
    """Return the response of the action."""
    return decode(call.api.response, call.context.api_version, b64decode(action["response"]))


def _without_response(session: Session) -> "Future[None]":
    """Return a future that is done when the connection ends."""
    ended: Future[None] = get_running_loop().create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    if session.closed:
        end()
    else:
        session.on_end(end)
    return ended
