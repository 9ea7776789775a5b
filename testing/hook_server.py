"""The test process' end of the connections to brokers: it decides on their requests, by the rules of `Faults`."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING, Any

from odradek.testing.faults import Faults, Injection
from odradek.testing.rules import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.testing.background import Background
    from odradek.testing.faults import Rule, Watched
    from odradek.testing.rules import Action

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
        rule = self._faults.rule_for(request)
        if rule is None:
            self._write({"decision": number, "action": None})
        else:
            self._spawn(self._respond(number, request, rule))

    async def _respond(self, number: int, request: Request, rule: Rule) -> None:
        action: Action | None = None
        try:
            action = await asyncio.to_thread(rule.effect, request)
        finally:
            if action is not None:
                self._faults.note(rule, Injection(request, action))
            self._write({"decision": number, "action": None if action is None else action.message()})
