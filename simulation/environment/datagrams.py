"""UDP in memory: datagrams are lost, duplicated and reordered without notice."""

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

from odradek.simulation.environment.transport import Buffer, FakeSocket

if TYPE_CHECKING:
    from odradek.simulation.environment.network import Network

LOSS_PROBABILITY: Final = 0.01
DOUBLE_PROBABILITY: Final = 0.003
DATAGRAM_BYTES_MAX: Final = 65_507

Address = tuple[str, int]


class SimDatagrams(asyncio.DatagramTransport):
    """One bound UDP socket. With `peer` it is connected, and receives datagrams of that peer only."""

    def __init__(
        self,
        network: "Network",
        protocol: asyncio.DatagramProtocol,
        address: Address,
        peer: Address | None,
        context: Context,
    ) -> None:
        socket = FakeSocket(address, peer)
        super().__init__({"sockname": address, "peername": peer, "socket": socket})
        self._network = network
        self._protocol = protocol
        self.address = address
        self.peer = peer
        self.context = context
        self._closing = False

    def start(self) -> None:
        if not self._closing:
            self._protocol.connection_made(self)

    def sendto(self, data: Buffer, addr: Any = None) -> None:
        if self._closing:
            return
        target = addr or self.peer
        assert target is not None, "no destination"
        assert len(data) <= DATAGRAM_BYTES_MAX, f"a datagram of {len(data)} bytes"
        self._network.send_datagram(self, bytes(data), (str(target[0]), int(target[1])))

    def receive(self, data: bytes, source: Address) -> None:
        if not self._closing and (self.peer is None or self.peer == source):
            self._protocol.datagram_received(data, source)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing and not self._network.loop.is_closed():  # the garbage collector closes unused transports
            self.detach()
            self._network.loop.call_soon(self._protocol.connection_lost, None, context=self.context)

    def abort(self) -> None:
        self.close()

    def detach(self) -> None:
        """Close the socket of an ended process, without a callback."""
        self._closing = True
        self._network.unbind(self.address)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol
