"""A TCP relay between a producer and its brokers, which can withhold one EndTxn request, or the response to it.

The relay forwards whole frames. It replaces the broker addresses in responses with its own: it opens one listener per
broker, so that every connection of the client passes the relay. After `Relay.arm`, it handles the next commit as
follows:

1. The relay forwards the EndTxn request to the broker immediately.
2. After a delay that was generated from the seed, it kills the producer.
3. It reads and records the broker's response, and does not forward it.

The producer is therefore killed after it sent its commit and before it received the outcome. The delay determines how
far the broker has processed the EndTxn request at that time.

After `Relay.arm` with `late`, the relay keeps the request itself, and kills the producer. `Relay.release` forwards it,
for example when the next run of the producer has begun.

With TLS, the relay ends the connections of the client with a certificate of its own, which the client trusts, and
connects to the brokers as a client of the cluster does. A login by SASL consists of frames, too, and passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from odradek.client.security.tls import context_of
from odradek.pipeline.faults import frames
from odradek.pipeline.faults.certificate import make_certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from odradek.pipeline.cluster.access import Access
    from odradek.pipeline.faults.frames import Address, RequestInfo
    from odradek.protocol.messages.end_txn import EndTxnRequest

T = TypeVar("T")

LATE_SECONDS_MAX = 300.0
"""Maximum seconds that the relay keeps a late EndTxn request."""
RESPONSE_SECONDS_MAX = 30.0
"""Maximum seconds that the relay waits for the response to the EndTxn request of a killed producer."""
CALL_SECONDS_MAX = 10.0
"""Maximum seconds for a call from another thread into the relay's event loop."""
CLOSE_SECONDS_MAX = 1.0
"""Maximum seconds that the relay waits for the end of a connection. With TLS, the other side has to respond."""
HOST = "127.0.0.1"
"""Address of the listeners."""
FRAME_BYTES_MAX = 104_857_600
"""Maximum bytes per frame: the default of `socket.request.max.bytes`."""


@dataclass(slots=True)
class HeldCommit:
    """One commit whose response the relay withheld.

    `sent_at`, `killed_at` and `response_at` are seconds of time.monotonic. `error` is the error code of the response;
    0 is success. `completed` is set when the response was received, or will not arrive. A `late` commit is forwarded
    only when `released` is set.
    """

    request: EndTxnRequest
    sent_at: float
    late: bool = False
    released: asyncio.Event = field(default_factory=asyncio.Event)
    killed_at: float | None = None
    response_at: float | None = None
    error: int | None = None
    completed: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class ArmedKill:
    """Call `kill` `delay_seconds` after the next commit was forwarded, or received if it is `late`."""

    delay_seconds: float
    kill: Callable[[], None]
    late: bool


class Relay:
    """Relay between one client and a cluster.

    It runs in its own thread from `start` to `stop`. `arm`, `release` and `take_held_commit` may be called from any
    thread.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._brokers = [frames.address(broker) for broker in access.bootstrap.split(",")]
        tls = access.security.tls
        self.to_brokers = None if tls is None else context_of(tls)
        self._certificate = None if tls is None else make_certificate(HOST)
        self._server_context = None if self._certificate is None else self._certificate.server_context()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._listeners: dict[Address, asyncio.Server] = {}
        self._connections: dict[asyncio.Task[None], None] = {}
        self._armed: ArmedKill | None = None
        self._held: HeldCommit | None = None

    def start(self) -> Access:
        """Open a listener for each bootstrap broker. Return the access for the client."""
        self._thread.start()
        listeners = [self._call(self._listener(broker)) for broker in self._brokers]
        bootstrap = ",".join(f"{host}:{port}" for host, port in listeners)
        return self._access.through(bootstrap, None if self._certificate is None else self._certificate.trusted)

    def stop(self) -> None:
        """Close all connections and listeners, and end the thread."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def arm(self, delay_seconds: float, kill: Callable[[], None], *, late: bool = False) -> None:
        """Withhold the response to the next commit, and call `kill` `delay_seconds` after that commit was forwarded.

        With `late`, keep the commit itself until `release`. `kill` runs in the relay's thread.
        """
        self._loop.call_soon_threadsafe(setattr, self, "_armed", ArmedKill(delay_seconds, kill, late))

    def release(self) -> None:
        """Forward the late commit. Do nothing if there is none."""
        if self._held is not None:
            self._loop.call_soon_threadsafe(self._held.released.set)

    def take_held_commit(self) -> HeldCommit | None:
        """Return the commit that was withheld since the previous call, or None.

        Waits up to `RESPONSE_SECONDS_MAX` for the response of the broker.
        """
        held, self._held = self._held, None
        if held is not None:
            held.completed.wait(RESPONSE_SECONDS_MAX)
        return held

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS_MAX)

    async def _listener(self, broker: Address) -> Address:
        """Return the relay's address for a broker, and open the listener if there is none."""
        if broker not in self._listeners:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._serve(reader, writer, broker)

            self._listeners[broker] = await asyncio.start_server(serve, HOST, 0, ssl=self._server_context)
        host, port = self._listeners[broker].sockets[0].getsockname()
        return host, port

    async def _close(self) -> None:
        for server in self._listeners.values():
            server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter, broker: Address) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = None
        connection = RelayedConnection(self, to_client)
        try:
            await connection.run(client, broker)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # One side closed its connection, or the relay stops: the other side's connection is closed below.
        finally:
            await end(to_client)
            del self._connections[task]

    def hold_if_armed(self, request: EndTxnRequest) -> HeldCommit | None:
        """Start the kill timer for a commit that was just received. Return None if the relay is not armed."""
        armed, self._armed = self._armed, None
        if armed is None:
            return None
        held = self._held = HeldCommit(request, time.monotonic(), armed.late)

        def kill() -> None:
            held.killed_at = time.monotonic()
            armed.kill()

        self._loop.call_later(armed.delay_seconds, kill)
        return held

    async def replace_addresses(self, frame: bytes, request: RequestInfo) -> bytes:
        """Return the response with every broker address replaced by the relay's address for that broker."""
        listeners = {address: await self._listener(address) for address in frames.addresses(frame, request)}
        return frames.replace_addresses(frame, request, listeners.__getitem__)


class RelayedConnection:
    """One connection of the client, and the connection to the broker to which the relay forwards it."""

    def __init__(self, relay: Relay, to_client: asyncio.StreamWriter) -> None:
        self._relay = relay
        self._to_client = to_client
        self._in_flight: dict[int, RequestInfo] = {}
        self._held: dict[int, HeldCommit] = {}
        self._late: tuple[HeldCommit, bytes] | None = None

    async def run(self, client: asyncio.StreamReader, broker: Address) -> None:
        """Forward frames in both directions until the client closes its connection."""
        responses, to_broker = await asyncio.open_connection(*broker, ssl=self._relay.to_brokers)
        backward = asyncio.create_task(self._backward(responses))
        try:
            await self._forward(client, to_broker)
        finally:
            # The killed producer has closed its connection. Still wait for the withheld response: it shows whether the
            # commit was acknowledged.
            if self._held:
                with contextlib.suppress(asyncio.TimeoutError, OSError):
                    await self._forward_late(to_broker)
                    await asyncio.wait_for(asyncio.shield(backward), RESPONSE_SECONDS_MAX)
            backward.cancel()
            await asyncio.gather(backward, return_exceptions=True)
            for held in self._held.values():
                held.completed.set()  # without a response
            await end(to_broker)

    async def _forward(self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter) -> None:
        while True:
            frame = await read_frame(client)
            request = frames.read_request(frame)
            self._in_flight[request.correlation_id] = request
            commit = frames.read_end_txn(frame, request) if request.api_key == frames.END_TXN else None
            held = self._relay.hold_if_armed(commit) if commit is not None and commit.committed else None
            if held is not None:
                self._held[request.correlation_id] = held
            if held is not None and held.late:
                self._late = held, frame
            else:
                write_frame(to_broker, frame)
                await to_broker.drain()

    async def _forward_late(self, to_broker: asyncio.StreamWriter) -> None:
        """Forward the late commit when it is released."""
        if self._late is not None:
            held, frame = self._late
            await asyncio.wait_for(held.released.wait(), LATE_SECONDS_MAX)
            write_frame(to_broker, frame)
            await to_broker.drain()

    async def _backward(self, responses: asyncio.StreamReader) -> None:
        """Forward responses until the broker closes its connection, or until the withheld response was received."""
        try:
            while True:
                frame = await read_frame(responses)
                correlation_id = frames.read_correlation_id(frame)
                request = self._in_flight.pop(correlation_id)
                if held := self._held.pop(correlation_id, None):
                    held.error = frames.read_end_txn_error(frame, request)
                    held.response_at = time.monotonic()
                    held.completed.set()
                    # Keep the client's connection open until the client is killed. If it were closed, the client would
                    # repeat the request on another connection, and receive the outcome.
                    return
                if request.api_key in frames.APIS_WITH_BROKER_ADDRESSES:
                    frame = await self._relay.replace_addresses(frame, request)
                write_frame(self._to_client, frame)
        except (OSError, asyncio.IncompleteReadError):
            self._to_client.close()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Read one frame.

    Raise asyncio.IncompleteReadError at the end of the stream, and ConnectionError if the size is invalid.
    """
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    if not 0 < size <= FRAME_BYTES_MAX:
        raise ConnectionError(f"a frame of {size} bytes is outside 1 to {FRAME_BYTES_MAX}")
    return await reader.readexactly(size)


def write_frame(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(struct.pack(">i", len(frame)) + frame)


async def end(writer: asyncio.StreamWriter) -> None:
    """Close a connection, and wait until it is closed. After CLOSE_SECONDS_MAX it is aborted."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await writer.wait_closed()
    except OSError:  # includes TimeoutError
        pass
    finally:
        writer.transport.abort()
