"""Faults of the network between this broker and other brokers: blocked and slow directions.

Each broker applies them to the connections that it has opened, in both directions, and to the datagrams that it sends.
Bytes of a blocked direction wait until it is open, as TCP would send them again. Datagrams are dropped.
"""

from asyncio import (
    AbstractEventLoop,
    BaseProtocol,
    BaseTransport,
    BufferedProtocol,
    DatagramTransport,
    Event,
    Protocol,
    Transport,
)
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

MS: Final = 1_000
RECEIVE_BYTES: Final = 65_536
"""Bytes per read of a connection."""

Address = tuple[str, int]
Delay = float | None
"""Delay of a direction in milliseconds. None: it is blocked."""


class Direction:
    """One direction of one connection: it delivers items in order, late, or not before it is open."""

    def __init__(self, loop: AbstractEventLoop, deliver: Callable[[Any], None]) -> None:
        self.delay: Delay = 0.0
        self._loop = loop
        self._deliver = deliver
        self._items: deque[tuple[float, Any]] = deque()

    def add(self, item: Any) -> None:
        """Deliver an item now if the direction is open and has no delay, otherwise later."""
        if self.delay == 0 and not self._items:
            self._deliver(item)
            return
        self._items.append((self._loop.time() + (self.delay or 0.0) / MS, item))
        self._deliver_later()

    def change(self, delay: Delay) -> None:
        """Change the delay. Items that wait are not delayed again."""
        self.delay = delay
        self._deliver_due()

    def _deliver_later(self) -> None:
        if self._items and self.delay is not None:
            self._loop.call_at(self._items[0][0], self._deliver_due)

    def _deliver_due(self) -> None:
        while self._items and self.delay is not None and self._items[0][0] <= self._loop.time():
            self._deliver(self._items.popleft()[1])
        self._deliver_later()


class Link:
    """The link to one other broker, and the connections over it."""

    def __init__(self) -> None:
        self.outgoing: Delay = 0.0
        self.incoming: Delay = 0.0
        self.is_open = Event()
        self.is_open.set()
        self.connections: dict[LinkedConnection, None] = {}

    def change(self, outgoing: Delay, incoming: Delay) -> None:
        """Change the delays of both directions."""
        self.outgoing, self.incoming = outgoing, incoming
        if outgoing is None or incoming is None:
            self.is_open.clear()
        else:
            self.is_open.set()
        for connection in tuple(self.connections):
            connection.change()


class Links:
    """The links to all other brokers, by their addresses."""

    def __init__(self) -> None:
        self._links: dict[Address, Link] = {}

    def change(self, rows: Iterable[Sequence[Any]]) -> None:
        """Change links: for each address, the delays of the outgoing and the incoming direction."""
        for host, port, outgoing, incoming in rows:
            self.to((host, port)).change(outgoing, incoming)

    def to(self, address: Address) -> Link:
        """Return the link to an address."""
        return self._links.setdefault(address, Link())


class LinkedConnection(BufferedProtocol):
    """Protocol between a transport and the protocol of the broker, for one connection to another broker."""

    def __init__(self, loop: AbstractEventLoop, link: Link, inner: BaseProtocol) -> None:
        self._link = link
        self._inner = inner
        self._transport: Transport | None = None
        self._buffer = bytearray(RECEIVE_BYTES)
        self._incoming = Direction(loop, self._received)
        self._outgoing = Direction(loop, self._send)
        self.is_aborted = False
        """True if this broker has ended the connection."""

    def change(self) -> None:
        """Apply the delays of the link."""
        self._incoming.change(self._link.incoming)
        self._outgoing.change(self._link.outgoing)

    def write(self, data: Any) -> None:
        """Send bytes, or, with None, close the connection after them."""
        self._outgoing.add(data)

    def _send(self, data: Any) -> None:
        assert self._transport is not None
        if data is None:
            self._transport.close()
        else:
            self._transport.write(data)

    def _received(self, event: Callable[[], None]) -> None:
        event()

    # ---- transport events -------------------------------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast("Transport", transport)
        self._link.connections[self] = None
        self.change()
        self._inner.connection_made(LinkedTransport(self, self._transport))

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._buffer[:nbytes])
        self._incoming.add(lambda: self._pass_on(data))

    def _pass_on(self, data: bytes) -> None:
        inner = self._inner
        if self not in self._link.connections:
            return
        if isinstance(inner, Protocol):
            inner.data_received(data)
            return
        assert isinstance(inner, BufferedProtocol)
        view = memoryview(data)
        while view:
            buffer = inner.get_buffer(len(view))
            target = memoryview(buffer)
            count = min(len(target), len(view))
            target[:count] = view[:count]
            inner.buffer_updated(count)
            view = view[count:]

    def connection_lost(self, exc: Exception | None) -> None:
        if self.is_aborted:
            self._lost(exc)
        else:  # the end of the connection at the other broker is a packet, too
            self._incoming.add(lambda: self._lost(exc))

    def _lost(self, exc: Exception | None) -> None:
        if self._link.connections.pop(self, self) is None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class LinkedTransport(Transport):
    """Transport as the protocol of the broker sees it."""

    def __init__(self, connection: LinkedConnection, transport: Transport) -> None:
        super().__init__()
        self._connection = connection
        self._transport = transport
        self._is_closing = False

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._connection.write(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._connection.is_aborted = True
            self._connection.write(None)

    def abort(self) -> None:
        self._is_closing = True
        self._connection.is_aborted = True
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def is_reading(self) -> bool:
        return self._transport.is_reading()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()


class LinkedDatagrams(DatagramTransport):
    """Transport of datagrams: it drops or delays those for brokers with such a link."""

    def __init__(self, loop: AbstractEventLoop, links: Links, transport: DatagramTransport) -> None:
        super().__init__()
        self._loop = loop
        self._links = links
        self._transport = transport

    def sendto(self, data: Any, addr: Any = None) -> None:
        delay = self._links.to((addr[0], addr[1])).outgoing if addr else 0.0
        if delay is not None and delay > 0:
            self._loop.call_later(delay / MS, self._send, bytes(data), addr)
        elif delay is not None:
            self._transport.sendto(data, addr)

    def _send(self, data: bytes, addr: Any) -> None:
        if not self._transport.is_closing():
            self._transport.sendto(data, addr)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
