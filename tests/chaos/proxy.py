"""A proxy for Kafka frames between clients and brokers and between brokers.

With TLS, the proxy ends it on both sides of a connection, so that it finds the frames inside.

One process serves all links. Each proxy port forwards to one listener of one broker. The client id of the first frame
identifies the source of a connection: `broker-2-...` is node 2, other client ids are clients. The proxy reads only the
length, API key, version, correlation id and client id of a frame.

The proxy reads commands as JSON lines from standard input, and writes its observations to the journal. It records each
late request: an EndTxn, OffsetCommit or TxnOffsetCommit that is in flight after its client closed the connection. With
the classic protocol, the broker cannot distinguish a late EndTxn from the EndTxn of a later transaction. No protocol
distinguishes a late offset commit from a later one of the same member.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
import struct
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import uvloop

from tests.chaos.journal import Journal, now

CLIENTS: Final = 0
"""Source of a link from clients. Node ids begin at 1."""
REQUEST, RESPONSE = "request", "response"
BOTH: Final = (REQUEST, RESPONSE)
OFFSET_COMMIT, END_TXN, TXN_OFFSET_COMMIT = 8, 26, 28
FRAME_BYTES_MAX: Final = 1 << 27
LINGER_SECONDS: Final = 60.0
"""Maximum time for which a broker connection stays open after its client left, to await responses, in seconds."""
SOURCE: Final = re.compile(r"(?:broker|raft-client|node)-(\d+)|^(\d+)$")
HEAD: Final = struct.Struct(">hhih")


@dataclass
class FrameFault:
    """A fault for the next request with one of `api_keys` on a link, until `expires_at`. It is injected once."""

    action: str
    api_keys: tuple[int, ...]
    source: int
    target: int
    seconds: float
    expires_at: float

    def matches(self, link: tuple[int, int], api_key: int) -> bool:
        return link == (self.source, self.target) and api_key in self.api_keys and now() < self.expires_at


@dataclass(slots=True)
class PendingRequest:
    """A forwarded request without a response. `lose_response`: drop the response, and close the connection."""

    api_key: int
    version: int
    client_id: str
    since: float
    lose_response: bool = False


@dataclass(eq=False)
class ProxiedConnection:
    """A client connection, and its connection to the broker. `pending` contains requests by correlation id."""

    target: int
    client_reader: asyncio.StreamReader
    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    source: int = CLIENTS
    pending: dict[int, PendingRequest] = field(default_factory=dict)
    client_left_at: float = 0.0

    @property
    def link(self) -> tuple[int, int]:
        return (self.source, self.target)

    def client_left(self) -> None:
        if not self.client_left_at:
            self.client_left_at = now()

    def reset(self) -> None:
        self.client_left()
        self.client.transport.abort()
        self.broker.transport.abort()


class DatagramForwarder(asyncio.DatagramProtocol):
    """Forwards UDP datagrams to one broker, from the proxy port of their sender, which is registered.

    It drops them while the link from their sender's port is blocked.
    """

    def __init__(self, proxy: Proxy, target: int, broker_port: int) -> None:
        self.proxy = proxy
        self.target = target
        self.broker_port = broker_port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        source = self.proxy.nodes_by_port.get(addr[1], CLIENTS)
        if (source, self.target, REQUEST) not in self.proxy.blocked:
            self.proxy.counters["datagrams"] += 1
            transport = self.proxy.datagrams_by_port.get(addr[1], self.transport)
            cast("asyncio.DatagramTransport", transport).sendto(data, ("127.0.0.1", self.broker_port))


class ProxyTls:
    """TLS on both sides of the proxy: a server for clients and nodes, and a client of the brokers.

    `proxy.pem` has the certificate for both, and `trusted.pem` the certificates that the brokers' must lead to.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.load()

    def load(self) -> None:
        """Read the files. New connections use them."""
        certificate = self._directory / "proxy.pem"
        self.server.load_cert_chain(certificate)
        self.client = ssl.create_default_context(cafile=self._directory / "trusted.pem")
        self.client.load_cert_chain(certificate)


class Proxy:
    """All links of a cluster. `blocked` has an event per blocked (source, target, direction), set on unblock."""

    def __init__(self, journal: Journal, tls: ProxyTls | None = None) -> None:
        self.journal = journal
        self.tls = tls
        self.connections: dict[ProxiedConnection, None] = {}
        self.blocked: dict[tuple[int, int, str], asyncio.Event] = {}
        self.nodes_by_port: dict[int, int] = {}
        self.frame_faults: list[FrameFault] = []
        self.counters: Counter[str] = Counter()
        self._servers: list[asyncio.Server] = []
        self.datagrams_by_port: dict[int, asyncio.DatagramTransport] = {}
        """The socket at the proxy port of a listener, by the port of the listener."""
        self._handlers: dict[asyncio.Task[None], None] = {}

    async def listen(self, port: int, target: int, broker_port: int) -> None:
        """Forward TCP connections and datagrams that arrive at `port` to a listener of broker `target`."""

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._handlers[task] = None
            try:
                await self.serve(reader, writer, target, broker_port)
            finally:
                del self._handlers[task]

        server = await asyncio.start_server(
            handle, "127.0.0.1", port, limit=1 << 20, backlog=512, ssl=None if self.tls is None else self.tls.server
        )
        self._servers.append(server)
        self.nodes_by_port[broker_port] = target
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: DatagramForwarder(self, target, broker_port), local_addr=("127.0.0.1", port)
        )
        self.datagrams_by_port[broker_port] = transport

    async def close(self) -> None:
        for transport in self.datagrams_by_port.values():
            transport.close()
        for server in self._servers:
            server.close()
        self.command({"command": "heal"})
        for connection in self.connections:
            connection.reset()
        for handler in list(self._handlers):
            await asyncio.wait([handler])

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int, broker_port: int
    ) -> None:
        try:
            broker_reader, broker = await asyncio.open_connection(
                "127.0.0.1", broker_port, limit=1 << 20, ssl=None if self.tls is None else self.tls.client
            )
        except ssl.SSLError as error:
            self.counters[f"TLS handshakes with brokers that failed: {error.reason}"] += 1
            writer.transport.abort()
            return
        except OSError:
            writer.transport.abort()
            return
        connection = ProxiedConnection(target, reader, writer, broker)
        self.connections[connection] = None
        self.counters["connections"] += 1
        responses = asyncio.create_task(self.forward_responses(connection, broker_reader))
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self.forward_requests(connection)
            connection.client_left()
            if connection.pending:
                await asyncio.wait([responses], timeout=LINGER_SECONDS)
        finally:
            connection.broker.transport.abort()
            await asyncio.wait([responses], timeout=1.0)
            self.note_late(connection, list(connection.pending.values()))
            connection.reset()
            del self.connections[connection]

    async def forward_requests(self, connection: ProxiedConnection) -> None:
        """Forward the requests of a connection in order. Forward a complete frame even if its client has left."""
        first = True
        while True:
            size = await connection.client_reader.readexactly(4)
            length = int.from_bytes(size, "big")
            if not HEAD.size <= length <= FRAME_BYTES_MAX:
                connection.reset()
                return
            frame = await connection.client_reader.readexactly(length)
            api_key, version, correlation, name_bytes = HEAD.unpack_from(frame)
            name = frame[HEAD.size : HEAD.size + max(0, name_bytes)].decode(errors="replace")
            if first:
                first = False
                connection.source = source_of(name)
            request = connection.pending[correlation] = PendingRequest(api_key, version, name, now())
            self.counters["requests"] += 1
            if await self.inject_frame_fault(connection, request, size + frame):
                return
            await self.wait_while_blocked(connection, REQUEST)
            await send(connection.broker, size + frame)

    async def inject_frame_fault(self, connection: ProxiedConnection, request: PendingRequest, whole: bytes) -> bool:
        """Inject the first matching fault into a request. Return True if the fault closed the connection."""
        fault = next((fault for fault in self.frame_faults if fault.matches(connection.link, request.api_key)), None)
        if fault is None:
            return False
        self.frame_faults.remove(fault)
        self.counters[fault.action] += 1
        details = {"api": request.api_key, "client": request.client_id, "link": list(connection.link)}
        self.journal.write("frame fault", "info", action=fault.action, **details)
        if fault.action == "hold_request":
            await asyncio.sleep(fault.seconds)
        elif fault.action == "lose_response":
            request.lose_response = True
        elif fault.action == "half_frame":
            await send(connection.broker, whole[: len(whole) // 2])
            connection.pending.clear()  # an incomplete request cannot take effect
            connection.reset()
            return True
        return False

    async def forward_responses(self, connection: ProxiedConnection, reader: asyncio.StreamReader) -> None:
        """Forward the responses of a connection in order. After the client left, read and discard them."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(size, "big"))
                request = connection.pending.pop(int.from_bytes(frame[:4], "big"), None)
                if request is not None and connection.client_left_at:
                    self.note_late(connection, [request])
                if request is not None and request.lose_response:
                    connection.client_left()
                    connection.client.transport.abort()
                if connection.client_left_at:
                    if not connection.pending:
                        return
                    continue
                await self.wait_while_blocked(connection, RESPONSE)
                await send(connection.client, size + frame)
        if not connection.client_left_at:
            connection.client.close()

    async def wait_while_blocked(self, connection: ProxiedConnection, direction: str) -> None:
        unblocked = self.blocked.get((*connection.link, direction))
        if unblocked is not None:
            await unblocked.wait()

    def note_late(self, connection: ProxiedConnection, requests: list[PendingRequest]) -> None:
        """Record late requests: when each arrived at the proxy, and the span in which its broker may have received it.

        The span begins when the proxy learns that the client has left: for a held request, after the request was
        forwarded. So the transaction that sent the request can have ended before the span:
        1. A TxnOffsetCommit is held. Its client gives up, closes the connection and aborts the transaction.
        2. The client begins another transaction, with the same producer epoch, and adds offsets.
        3. The request arrives. With the classic protocol, the second transaction commits the offsets of the first one.
        The inputs of the first transaction have no output then.
        """
        for request in requests:
            if request.api_key in {OFFSET_COMMIT, END_TXN, TXN_OFFSET_COMMIT}:
                times = {"sent": request.since, "since": connection.client_left_at or request.since, "until": now()}
                details = {"client": request.client_id, "api": request.api_key, "version": request.version}
                self.journal.write("late", "info", **details, **times)

    # ---- commands ---------------------------------------------------------------------------------------------------

    def command(self, line: dict[str, Any]) -> None:
        match line["command"]:
            case "block":
                for direction in line["directions"]:
                    self.blocked.setdefault((line["source"], line["target"], direction), asyncio.Event())
            case "unblock":
                for direction in BOTH:
                    unblocked = self.blocked.pop((line["source"], line["target"], direction), None)
                    if unblocked is not None:
                        unblocked.set()
            case "reset":
                for connection in list(self.connections):
                    if connection.link == (line["source"], line["target"]):
                        connection.reset()
            case "frame_fault":
                keys, link = tuple(line["api_keys"]), (line["source"], line["target"])
                expires_at = now() + line["lifetime"]
                self.frame_faults.append(FrameFault(line["action"], keys, *link, line["seconds"], expires_at))
            case "replace_certificates":
                assert self.tls is not None
                self.tls.load()
            case "heal":
                for unblocked in self.blocked.values():
                    unblocked.set()
                self.blocked.clear()
                self.frame_faults.clear()


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write `data` and wait until the buffer has space.

    Raises:
        OSError: the connection is closed.
    """
    if writer.transport.is_closing():
        raise ConnectionResetError("the connection is closed")
    writer.write(data)
    await writer.drain()


def source_of(client_id: str) -> int:
    """Return the node id in a client id, or CLIENTS if it contains none."""
    match = SOURCE.search(client_id)
    return int(match[1] or match[2]) if match else CLIENTS


async def main() -> None:
    """Run the proxy.

    Arguments: the path of the journal, the directory with the files of TLS or an empty text, and PORT:NODE:BROKER_PORT
    for each proxy port.
    """
    journal = Journal(Path(sys.argv[1]), "proxy")
    proxy = Proxy(journal, ProxyTls(Path(sys.argv[2])) if sys.argv[2] else None)
    for argument in sys.argv[3:]:
        port, target, broker_port = (int(part) for part in argument.split(":"))
        await proxy.listen(port, target, broker_port)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("ready", flush=True)
    while line := await reader.readline():
        proxy.command(json.loads(line))
        print("done", flush=True)
    await proxy.close()
    journal.write("proxy", "info", **proxy.counters)


if __name__ == "__main__":
    uvloop.run(main())
