"""The test process' end of the connections to brokers: it decides on their requests, by the rules of `Faults`."""

from __future__ import annotations

import asyncio
import json
import socket
from base64 import b64decode
from typing import TYPE_CHECKING, Any

from odradek.protocol.codec import decode
from odradek.protocol.messages import response_class
from odradek.testing.api_names import api_key
from odradek.testing.faults import Faults, respond
from odradek.testing.rules import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from odradek.protocol.schema import Message
    from odradek.testing.background import Background
    from odradek.testing.faults import Watched
    from odradek.testing.injected_rules import Rule

LINE_BYTES_MAX = 16 * 1024 * 1024
"""Maximum bytes of one message. A description of a request with 100,000 partitions has about 10 MiB."""
ACKNOWLEDGE_TIMEOUT_S = 20.0
"""Maximum seconds until a running broker has a changed rule."""


class HookServer:
    """Connections to the brokers of one cluster."""

    def __init__(self, background: Background, brokers: int) -> None:
        self._background = background
        self.faults = Faults(self._publish, brokers)
        self._brokers: dict[int, _Broker] = {}
        self._child_ends: dict[int, socket.socket] = {}
        self._states: dict[int, dict[str, Any]] = {}
        """State of each broker, by the key of its message. A broker that starts receives it."""
        self.paused: set[int] = set()
        """Brokers that do not execute, so that they confirm nothing. They have a changed rule when they continue."""

    def descriptor(self, node_id: int) -> int:
        """Return the descriptor of a new connection for a broker that is about to start. The broker inherits it."""
        own, child = socket.socketpair()
        own.setblocking(False)
        self._child_ends[node_id] = child
        self._brokers[node_id] = _Broker(node_id, self.faults, self._states.get(node_id, {}))
        self._background.run(self._brokers[node_id].open(own))
        return child.fileno()

    def started(self) -> None:
        """Close the ends of the brokers in this process, after they have started."""
        for child in self._child_ends.values():
            child.close()
        self._child_ends.clear()

    def close(self) -> None:
        """Close all connections."""
        self.started()
        while self._brokers:
            _, broker = self._brokers.popitem()
            self._background.loop.call_soon_threadsafe(broker.close)

    def set(self, key: str, values: Mapping[int, Any]) -> None:
        """Change the state of brokers, also for their later starts. Return when those that execute have applied it."""
        for node_id, value in values.items():
            self._states.setdefault(node_id, {})[key] = value
        self._background.run(self._send({node_id: {key: value} for node_id, value in values.items()}))

    async def _send(self, messages: Mapping[int, Mapping[str, Any]]) -> None:
        known = self._brokers
        sent = [
            (known[node_id], known[node_id].send(message)) for node_id, message in messages.items() if node_id in known
        ]
        awaited = [future for broker, future in sent if broker.node_id not in self.paused]
        async with asyncio.timeout(ACKNOWLEDGE_TIMEOUT_S):
            await asyncio.gather(*awaited)

    def _publish(self, watched: Watched) -> None:
        self._background.run(self._send({node_id: {"watch": watched} for node_id in self._brokers}))


class _Broker:
    """Connection to one broker process. All calls belong on the event loop in the background."""

    def __init__(self, node_id: int, faults: Faults, state: Mapping[str, Any]) -> None:
        self.node_id = node_id
        self._state = state
        self._faults = faults
        self._writer: asyncio.StreamWriter | None = None
        self._sent = 0
        self._unconfirmed: dict[int, asyncio.Future[None]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._rewrites: dict[int, tuple[Request, Callable[[Any], Message]]] = {}
        """Requests whose response a function rewrites, by the number of the decision on the request."""

    async def open(self, own: socket.socket) -> None:
        """Begin to receive, and send the rules that exist."""
        reader, self._writer = await asyncio.open_connection(sock=own, limit=LINE_BYTES_MAX)
        self._spawn(self._receive(reader))
        self.send({**self._state, "watch": self._faults.watched()})

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def send(self, message: Mapping[str, Any]) -> asyncio.Future[None]:
        """Send a message. Return a future that is done when the broker has carried it out, or has ended."""
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._writer is None:
            confirmed.set_result(None)
            return confirmed
        self._sent += 1
        self._unconfirmed[self._sent] = confirmed
        self._write({**message, "id": self._sent})
        return confirmed

    def _write(self, message: Mapping[str, Any]) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(message).encode() + b"\n")

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if "done" in message:
                    self._confirm(message["done"])
                elif "rewrite" in message:
                    self._spawn(self._rewrite(message["decide"], message["rewrite"], message["response"]))
                else:
                    self._decide(message["decide"], Request.of(self.node_id, message["request"]))
        except OSError:
            pass  # the broker was killed
        finally:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            for number in list(self._unconfirmed):
                self._confirm(number)

    def _confirm(self, number: int) -> None:
        future = self._unconfirmed.pop(number)
        if not future.done():
            future.set_result(None)

    def _decide(self, number: int, request: Request) -> None:
        try:
            rules = self._faults.taking(request)
        except BaseException as error:  # noqa: BLE001  a condition of the test
            self._faults.failed(error)
            rules = []
        if rules:
            self._spawn(self._respond(number, request, rules))
        else:
            self._write({"decision": number, "action": None})

    async def _respond(self, number: int, request: Request, rules: list[Rule]) -> None:
        message: Mapping[str, Any] | None = None
        try:
            action = await self._faults.decide(request, rules)
            if action is not None:
                message = action.message(request.version)
                if action.function is not None:
                    message = {**message, "rewrite": number}
                    self._rewrites[number] = (request, action.function)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  a function of the test
            self._faults.failed(error)
        self._write({"decision": number, "action": message})

    async def _rewrite(self, number: int, rewrite: int, encoded: str) -> None:
        request, function = self._rewrites.pop(rewrite)
        message: Mapping[str, Any] | None = None
        try:
            response = decode(response_class(api_key(request.api)), request.version, b64decode(encoded))
            changed = await self._faults.calls.run(function, response)
            if changed is not None:
                message = respond(changed).message(request.version)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  a function of the test
            self._faults.failed(error)
        self._write({"decision": number, "action": message})
