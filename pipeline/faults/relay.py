"""A TCP relay that stands between a producer and its brokers, and can hold back the answer to one EndTxn.

It forwards whole frames. Answers that name brokers are changed to name the relay, which opens one more door for each
broker, so that every connection of the client passes here. Once armed it does this to the next commit:

1. The EndTxn request goes on to the broker, whole and at once.
2. A drawn time later the producer is killed.
3. The broker's answer is read, noted, and never passed on.

So the producer is certain to have died after its commit was on the way and before it knew the outcome, at whatever moment
of the broker's work the drawn time falls on.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from odradek.pipeline.faults import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from odradek.pipeline.faults.frames import Address, Sent
    from odradek.protocol.messages.end_txn import EndTxnRequest

T = TypeVar("T")

ANSWER_SECONDS_MAX = 30.0
CALL_SECONDS_MAX = 10.0
FRAME_BYTES_MAX = 104_857_600


@dataclass(slots=True)
class Caught:
    """One commit that the relay held in the air. Times are of time.monotonic; ``error`` is the broker's code, 0 is done."""

    request: EndTxnRequest
    sent_at: float
    killed_at: float | None = None
    answered_at: float | None = None
    error: int | None = None
    answered: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Trap:
    delay_seconds: float
    kill: Callable[[], None]


class Relay:
    """Runs in a thread of its own from `start` to `stop`; the other methods may be called from any thread."""

    def __init__(self, bootstrap: str) -> None:
        self._upstream = [frames.address(one) for one in bootstrap.split(",")]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._doors: dict[Address, asyncio.Server] = {}
        self._conversations: dict[asyncio.Task[None], None] = {}
        self._trap: Trap | None = None
        self._caught: Caught | None = None

    def start(self) -> str:
        """Open the first doors. Returns the addresses for the client: host:port,..."""
        self._thread.start()
        doors = [self._call(self._door(broker)) for broker in self._upstream]
        return ",".join(f"{host}:{port}" for host, port in doors)

    def stop(self) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def arm(self, delay_seconds: float, kill: Callable[[], None]) -> None:
        """Catch the next commit: ``kill`` is called (in the relay's thread) that long after it went on its way."""
        self._loop.call_soon_threadsafe(setattr, self, "_trap", Trap(delay_seconds, kill))

    def take_caught(self) -> Caught | None:
        """The commit that was caught since the last call, with its answer if one comes within a bounded time."""
        caught, self._caught = self._caught, None
        if caught is not None:
            caught.answered.wait(ANSWER_SECONDS_MAX)
        return caught

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS_MAX)

    async def _door(self, broker: Address) -> Address:
        """The relay's own address for a broker."""
        if broker not in self._doors:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._converse(reader, writer, broker)

            self._doors[broker] = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = self._doors[broker].sockets[0].getsockname()
        return host, port

    async def _close(self) -> None:
        for server in self._doors.values():
            server.close()
        for task in list(self._conversations):
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    async def _converse(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter, broker: Address) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._conversations[task] = None
        conversation = Conversation(self, to_client)
        try:
            await conversation.run(client, broker)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # either side has gone, or the relay stops: the other side learns it by its connection closing
        finally:
            to_client.close()
            del self._conversations[task]

    def spring(self, request: EndTxnRequest) -> Caught | None:
        """Called with each commit on its way to the broker: the trap closes on the first one after it was armed."""
        trap, self._trap = self._trap, None
        if trap is None:
            return None
        caught = self._caught = Caught(request, time.monotonic())

        def strike() -> None:
            caught.killed_at = time.monotonic()
            trap.kill()

        self._loop.call_later(trap.delay_seconds, strike)
        return caught

    async def redirected(self, frame: bytes, sent: Sent) -> bytes:
        """The answer with every broker's address replaced by its door."""
        doors = {address: await self._door(address) for address in frames.addresses(frame, sent)}
        return frames.redirect(frame, sent, doors.__getitem__)


class Conversation:
    """One connection of the client and the one to the broker that serves it."""

    def __init__(self, relay: Relay, to_client: asyncio.StreamWriter) -> None:
        self._relay = relay
        self._to_client = to_client
        self._unanswered: dict[int, Sent] = {}
        self._held: dict[int, Caught] = {}

    async def run(self, client: asyncio.StreamReader, broker: Address) -> None:
        answers, to_broker = await asyncio.open_connection(*broker)
        backward = asyncio.create_task(self._backward(answers))
        try:
            await self._forward(client, to_broker)
        finally:
            # The client is gone. What it was never told is still worth knowing, so the broker may finish its sentence.
            if self._held:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(asyncio.shield(backward), ANSWER_SECONDS_MAX)
            backward.cancel()
            await asyncio.gather(backward, return_exceptions=True)
            to_broker.close()
            for caught in self._held.values():
                caught.answered.set()  # by silence

    async def _forward(self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter) -> None:
        while True:
            frame = await read_frame(client)
            sent = frames.read_request(frame)
            self._unanswered[sent.correlation_id] = sent
            commit = frames.read_end_txn(frame, sent) if sent.api_key == frames.END_TXN else None
            write_frame(to_broker, frame)
            if commit is not None and commit.committed and (caught := self._relay.spring(commit)):
                self._held[sent.correlation_id] = caught
            await to_broker.drain()

    async def _backward(self, answers: asyncio.StreamReader) -> None:
        """Until the broker closes, or the answer to the held commit has come."""
        try:
            while True:
                frame = await read_frame(answers)
                correlation_id = frames.read_correlation_id(frame)
                sent = self._unanswered.pop(correlation_id)
                if caught := self._held.pop(correlation_id, None):
                    caught.error = frames.read_end_txn_error(frame, sent)
                    caught.answered_at = time.monotonic()
                    caught.answered.set()
                    # The client's connection stays open until it is killed: closed, it would ask again elsewhere.
                    return
                if sent.api_key in frames.NAMING_APIS:
                    frame = await self._relay.redirected(frame, sent)
                write_frame(self._to_client, frame)
        except (OSError, asyncio.IncompleteReadError):
            self._to_client.close()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Raises asyncio.IncompleteReadError at the end of the stream, ConnectionError on nonsense."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    if not 0 < size <= FRAME_BYTES_MAX:
        raise ConnectionError(f"a frame of {size} bytes")
    return await reader.readexactly(size)


def write_frame(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(struct.pack(">i", len(frame)) + frame)
