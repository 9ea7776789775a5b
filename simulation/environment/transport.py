"""In-memory transports with asyncio's contract: flow control, protocols and buffered protocols, close, abort, end of
file.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from odradek.simulation.environment.loop import SimLoop
    from odradek.simulation.environment.network import Network

HIGH_WATER_BYTES: Final = 64 * 1024
FIFO_SECONDS: Final = 1e-7
SEGMENT_PROBABILITY: Final = 0.15
LATE_SECONDS: Final = 0.25
"""Seconds from the begin of a connection after which its first request is late."""
SENT_LAST_MAX: Final = 6
SIZE = struct.Struct(">i")
ENDS_TRANSACTIONS: Final = (26, 27)
"""API keys of EndTxn and WriteTxnMarkers."""
REQUEST_START = struct.Struct(">hhi")

Buffer = bytes | bytearray | memoryview


class FakeSocket:
    """The part of a socket's interface that asyncio code calls."""

    family = 2
    type = 1
    proto = 6

    def __init__(self, name: tuple[str, int], peer: tuple[str, int] | None) -> None:
        self._name = name
        self._peer = peer

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def getpeername(self) -> tuple[str, int] | None:
        return self._peer

    def setsockopt(self, *args: Any) -> None:
        """Ignore all options."""

    def fileno(self) -> int:
        return -1


class SimServer(asyncio.AbstractServer):
    """Listener. Accepted connections run in the context of the code that called `listen`."""

    def __init__(
        self,
        network: "Network",
        factory: Callable[[], asyncio.BaseProtocol],
        context: Context,
        addresses: list[tuple[str, int]],
    ) -> None:
        self._network = network
        self.factory = factory
        self.context = context
        self.sockets: tuple[FakeSocket, ...] = tuple(FakeSocket(address, None) for address in addresses)
        self._serving = True

    def close(self) -> None:
        self._serving = False
        self.sockets = ()
        self._network.unlisten(self)

    async def wait_closed(self) -> None:
        """Return immediately: closing takes no time."""

    def is_serving(self) -> bool:
        return self._serving

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    async def start_serving(self) -> None:
        """Return immediately: the server accepts connections from its creation."""

    async def serve_forever(self) -> None:
        await self._network.loop.create_future()


class Pipe:
    """One direction of a connection.

    On a framed link, faults apply to whole frames of Kafka's protocol. Data may arrive in several segments.
    """

    def __init__(
        self, network: "Network", connection: int, link: tuple[str, str], *, began_s: float, is_request: bool
    ) -> None:
        self.network = network
        self.began_s = began_s
        """Virtual time at which the client began to connect."""
        self.connection = connection
        self.link = link
        self.is_request = is_request
        self._framed = network.is_framed(link)
        self.half_open = False
        """True if the receiving end lost power without closing the connection."""
        self._flight: deque[bytes | None] = deque()
        self._due = 0
        self._sent_last: deque[bytes] = deque(maxlen=SENT_LAST_MAX)
        """Last EndTxn and WriteTxnMarkers requests: if a partition delays them, they arrive after their sender has
        retried.
        """
        self.sink: SimTransport | None = None
        self.source: SimTransport | None = None
        self.in_flight = 0
        self.broken = False
        self.lost = False
        self.arrived: deque[bytes | None] = deque()
        self.api_keys: dict[int, int] = {}
        self._last_due = 0.0
        self._partial = bytearray()

    def send(self, data: bytes) -> None:
        if self.broken:
            return
        if not self._framed:
            self._travel(data)
            return
        self._partial += data
        while len(self._partial) >= SIZE.size:
            size = SIZE.unpack_from(self._partial)[0] + SIZE.size
            if size < SIZE.size:
                self._flush_partial()  # invalid size: the receiver handles the bytes
                return
            if len(self._partial) < size:
                break
            frame = bytes(self._partial[:size])
            del self._partial[:size]
            if not self._send_frame(frame):
                return

    def end(self) -> None:
        self._flush_partial()
        if not self.broken:
            self._travel(None)

    def _flush_partial(self) -> None:
        if self._partial and not self.broken:
            self._travel(bytes(self._partial))
        self._partial.clear()

    def break_off(self, *, lose: bool = False) -> None:
        """Drop everything that is sent from now on. With `lose` (a reset), drop data in transit, too."""
        self.broken = True
        self.lost = self.lost or lose
        self._partial.clear()

    def api_key_of(self, frame: bytes) -> int:
        """Return the API key of a request, or of the request of a response; -1 if unknown."""
        if self.is_request:
            return (
                int(REQUEST_START.unpack_from(frame, SIZE.size)[0])
                if len(frame) >= SIZE.size + REQUEST_START.size
                else -1
            )
        if len(frame) < 2 * SIZE.size or self.sink is None:
            return -1
        return self.sink.out.api_keys.get(SIZE.unpack_from(frame, SIZE.size)[0], -1)

    def _send_frame(self, frame: bytes) -> bool:
        """Send a frame. Return False if a fault breaks the connection at this frame."""
        if self.is_request and len(frame) >= SIZE.size + REQUEST_START.size:
            api_key, _, correlation_id = REQUEST_START.unpack_from(frame, SIZE.size)
            self.api_keys[correlation_id] = api_key
            self.network.requests[api_key] += 1
            if api_key in ENDS_TRANSACTIONS:
                self._note_if_late(frame)
                self._sent_last.append(frame)
        fault = self.network.frame_fault(self, frame)
        if fault is not None:
            part = self.network.apply_fault(self, fault, frame)
            if part:
                self._travel(part)
            self.break_off()
            self.network.reset_connection(self.connection, max(self._last_due, self.network.loop.time()))
            return False
        rng = self.network.rng
        if len(frame) > SIZE.size and rng.random() < SEGMENT_PROBABILITY:
            middle = rng.randrange(1, len(frame))
            self._travel(frame[:middle])
            self._travel(frame[middle:])
        else:
            self._travel(frame)
        return True

    def _note_if_late(self, frame: bytes) -> None:
        """Report the first frame of a connection whose set-up was slow: its sender may have sent it elsewhere, too.

        1. A coordinator queues a marker for broker 2. The connection and the login take seconds on a slow link.
        2. Broker 3 becomes the leader, and the coordinator sends the marker to it. The transaction is complete.
        3. The login ends. The queued marker leaves now.
        """
        network = self.network
        late = not self._sent_last and network.loop.time() - self.began_s >= LATE_SECONDS
        if late and network.on_late_delivery is not None:
            network.on_late_delivery(frame)

    def _travel(self, data: bytes | None) -> None:
        sink, loop = self.sink, self.network.loop
        assert sink is not None
        network = self.network
        delay = network.latency.sample(network.rng) + network.links.delay(*self.link)
        due = max(loop.time() + delay, self._last_due + FIFO_SECONDS)
        self._last_due = due
        self.in_flight += len(data) if data else 0
        self._flight.append(data)
        loop.call_at(due, self._arrive, context=self._arrival_context)

    def _arrive(self) -> None:
        """Deliver one more piece. Pieces keep their order, whatever delays them."""
        self._due += 1
        self._deliver_due()

    def _deliver_due(self) -> None:
        links = self.network.links
        if not links.is_open(*self.link):
            links.when_open(self.link, self._resume)
            return
        while self._due:
            self._due -= 1
            self._deliver(self._flight.popleft())

    def _resume(self) -> None:
        """Deliver the data that waited for the link, as TCP retransmits it."""
        network = self.network
        if network.on_late_delivery is not None:
            for frame in self._sent_last:
                network.on_late_delivery(frame)
        delay = network.latency.sample(network.rng)
        network.loop.call_later(delay, self._deliver_due, context=self._arrival_context)

    @property
    def _arrival_context(self) -> Context:
        """Context in which data arrives: that of the receiving process, or of its host once the process has ended.

        1. A process ends without power, and the connection of its peer stays half open.
        2. The host returns, and the ended process is removed from the loop. Its callbacks never run.
        3. The peer sends data. The host resets the connection.
        """
        assert self.sink is not None
        return self.network.loop.context_of("network") if self.sink.gone else self.sink.context

    def _deliver(self, data: bytes | None) -> None:
        sink, loop = self.sink, self.network.loop
        assert sink is not None
        if sink.gone or self.lost:
            if self.half_open and self.source is not None:  # a host resets connections that it does not know
                self.half_open = False
                source = self.source
                loop.call_soon(source.fail, ConnectionResetError(104, "reset"), context=source.context)
            return
        loop.trace.add(
            loop.steps,
            loop.time(),
            "arrive",
            self.connection,
            "c->s" if self.is_request else "s->c",
            -1 if data is None else len(data),
        )
        self.arrived.append(data)
        sink.deliver()

    def delivered(self, size: int) -> None:
        self.in_flight -= size
        source = self.source
        if source is not None and not source.gone:
            source.drained()


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, loop: "SimLoop", protocol: asyncio.BaseProtocol, out: Pipe, into: Pipe, sock: FakeSocket, context: Context
    ) -> None:
        super().__init__({"peername": sock.getpeername(), "sockname": sock.getsockname(), "socket": sock})
        self._loop = loop
        self._protocol = protocol
        self.out = out
        self._into = into
        self.context = context
        self.gone = False
        self._started = False
        self._closing = False
        self._end_sent = False
        self._reading = True
        self._writing_paused = False
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        out.source = self
        into.sink = self

    def start(self) -> None:
        if not self.gone:
            self._started = True
            self._protocol.connection_made(self)
            self.deliver()

    # ---- reading ----------------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Pass received data to the protocol while it reads."""
        arrived = self._into.arrived
        while arrived and self._started and self._reading and not self._closing and not self.gone:
            data = arrived.popleft()
            if data is None:
                self._end_of_input()
                return
            protocol = self._protocol
            if isinstance(protocol, asyncio.BufferedProtocol):
                buffer = protocol.get_buffer(len(data))
                assert isinstance(buffer, bytearray | memoryview)
                size = min(len(buffer), len(data))
                buffer[:size] = data[:size]
                if size < len(data):
                    arrived.appendleft(data[size:])
                protocol.buffer_updated(size)
            else:
                size = len(data)
                assert isinstance(protocol, asyncio.Protocol)
                protocol.data_received(data)
            self._into.delivered(size)

    def _end_of_input(self) -> None:
        assert isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        if not self._protocol.eof_received():
            self.close()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.call_soon(self.deliver, context=self.context)

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    # ---- writing ----------------------------------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        if self.gone or self._closing or self._end_sent:
            return
        self.out.send(bytes(data))
        if not self._writing_paused and self.get_write_buffer_size() > self._high:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def drained(self) -> None:
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._loop.call_soon(self._protocol.resume_writing, context=self.context)

    def get_write_buffer_size(self) -> int:
        return self.out.in_flight

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._end_sent and not self.gone:
            self._end_sent = True
            self.out.end()

    # ---- ending -----------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing or self.gone

    def close(self) -> None:
        """Close the connection after the written data; the peer receives the end of file."""
        if not self._closing and not self.gone:
            self.write_eof()
            self._closing = True
            self._loop.call_soon(self.fail, None, context=self.context)

    def abort(self) -> None:
        if not self.gone:
            self._closing = True
            peer = self.out.sink
            self.out.break_off(lose=True)
            self._loop.call_soon(self.fail, None, context=self.context)
            if peer is not None:
                self._loop.call_soon(peer.fail, ConnectionResetError(104, "reset"), context=peer.context)

    def fail(self, error: Exception | None) -> None:
        if self.gone:
            return
        self.gone = True
        self.out.break_off()
        if self._started:
            self._protocol.connection_lost(error)
        self._finish()

    def detach(self) -> None:
        """Close the transport of an ended process, without a callback."""
        self.gone = True
        self.out.break_off()
        self._finish()

    def _finish(self) -> None:
        if self.out.sink is None or self.out.sink.gone:
            self._loop.network.forget(self.out.connection)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol
