"""Connection to the process that runs the tests, over an inherited socket. Each message is one line of JSON.

======================================  =============================================================================
from the tests                          meaning
======================================  =============================================================================
``{"watch": [[26, false]], "id": 1}``    Request a decision on each EndTxn of a client. The broker responds
                                         ``{"done": 1}``. `ANY_API` selects all APIs, `true` requests of brokers.
``{"links": [...], "id": 2}``            Change links to other brokers (`odradek.broker.hooks.links`).
``{"full_disk": true, "id": 3}``         Fill the disk, or free it (`odradek.broker.hooks.disk`).
``{"decision": 7, "action": null}``      Response to the decision request 7. See `odradek.broker.hooks.dispatcher`.
======================================  =============================================================================

The broker sends ``{"decide": 7, "request": {...}}``. For a response that the tests rewrite, it also sends the encoded
response in base64: ``{"decide": 8, "rewrite": 7, "response": "..."}``. If the connection ends, the broker handles all
requests as usual.
"""

import json
import socket
from asyncio import BaseTransport, Future, Protocol, Transport, get_running_loop
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

ANY_API: Final = -1
"""API key that stands for all APIs."""
Handler = Callable[[Any], None]
"""Carries out a message with one key, given the value of that key."""


class HookChannel(Protocol):
    """The broker's end of the connection. All calls belong on the event loop."""

    def __init__(self) -> None:
        self._transport: Transport | None = None
        self._received = bytearray()
        self._watched: frozenset[tuple[int, bool]] = frozenset()
        self._pending: dict[int, Future[Mapping[str, Any] | None]] = {}
        self._handlers: dict[str, Handler] = {"watch": self._watch}
        self._numbers = 0

    def handle(self, key: str, handler: Handler) -> None:
        """Call `handler` for messages with `key`, before the response to them."""
        self._handlers[key] = handler

    async def open(self, descriptor: int) -> None:
        """Use the inherited socket."""
        await get_running_loop().create_connection(lambda: self, sock=socket.socket(fileno=descriptor))

    def watches(self, api_key: int, *, of_broker: bool) -> bool:
        """Return True if the tests decide on requests with this API key."""
        watched = self._watched
        return bool(watched) and ((api_key, of_broker) in watched or (ANY_API, of_broker) in watched)

    def decide(self, request: Mapping[str, Any]) -> "Future[Mapping[str, Any] | None]":
        """Request the action for a request. None: handle it as usual."""
        return self._send_question({"request": request})

    def rewrite(self, number: int, response: str) -> "Future[Mapping[str, Any] | None]":
        """Request the response in place of `response`, for the action with `number`. None: send it unchanged."""
        return self._send_question({"rewrite": number, "response": response})

    def _send_question(self, question: Mapping[str, Any]) -> "Future[Mapping[str, Any] | None]":
        future: Future[Mapping[str, Any] | None] = get_running_loop().create_future()
        if self._transport is None:
            future.set_result(None)
            return future
        self._numbers += 1
        self._pending[self._numbers] = future
        self._send({"decide": self._numbers, **question})
        return future

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._transport is not None:
            self._transport.write(json.dumps(message).encode() + b"\n")

    def _watch(self, rows: list[tuple[int, bool]]) -> None:
        self._watched = frozenset((int(key), bool(of_broker)) for key, of_broker in rows)

    # ---- transport events -------------------------------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast("Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        *lines, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        for line in lines:
            self._on_message(json.loads(line))

    def _on_message(self, message: dict[str, Any]) -> None:
        if "decision" in message:
            future = self._pending.pop(message["decision"])
            if not future.done():
                future.set_result(message["action"])
            return
        for key, value in message.items():
            if key != "id":
                self._handlers[key](value)
        self._send({"done": message["id"]})

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._watched = frozenset()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_result(None)
