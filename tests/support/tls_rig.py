"""Both ends of a connection with `TlsTransport`, on real sockets, without a broker."""

import asyncio
import ssl
from asyncio import BufferedProtocol, Transport
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from odradek.broker.config.properties import Config
from odradek.broker.config.property import Password
from odradek.broker.network.handshakes import Handshakes
from odradek.broker.tls.transport import TlsTransport
from odradek.memory_files import memory_file
from tests.support.certificates import Issued, issue

AUTHORITY = issue("authority", ca=True)
NODE = issue("node", AUTHORITY, hosts=["localhost", "127.0.0.1"])


def node_config(node: Issued = NODE, trusted: Issued | None = AUTHORITY, **more: Any) -> Config:
    """Return a configuration with a listener SSL and the certificates as texts. `more` has further attributes."""
    stores: dict[str, Any] = {
        "log_dirs": "data",
        "listeners": ("SSL://localhost:0",),
        "ssl_keystore_type": "PEM",
        "ssl_keystore_key": Password(node.key_pem()),
        "ssl_keystore_certificate_chain": Password(node.chain_pem),
    }
    if trusted is not None:
        stores |= {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": Password(trusted.pem)}
    return Config(**(stores | more))


def server_side(node: Issued = NODE, *, requires: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, node)
    if requires:
        context.load_verify_locations(cadata=AUTHORITY.pem)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_side(node: Issued | None = None, trusted: Issued = AUTHORITY) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trusted.pem)
    if node is not None:
        _load(context, node)
    return context


def _load(context: ssl.SSLContext, node: Issued) -> None:
    with memory_file((node.key_pem() + node.chain_pem).encode()) as path:
        context.load_cert_chain(path)


class End(BufferedProtocol):
    """One end. It collects what it receives and notes all events."""

    def __init__(
        self,
        *,
        on_data: Callable[["End", bytes], None] | None = None,
        on_made: Callable[["End"], object] | None = None,
    ) -> None:
        self.received = bytearray()
        self.transport: Any = None
        self.certificate: bytes | None = None
        self.failure: str | None = None
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.writing: list[str] = []
        self.resumed = asyncio.Event()
        self.changed = asyncio.Event()
        self._buffer = bytearray(32_768)
        self._on_made = on_made
        self._on_data = on_data

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("Transport", transport)
        if self._on_made is not None:
            self._on_made(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._buffer[:nbytes])
        self.received += data
        self.changed.set()
        if self._on_data is not None:
            self._on_data(self, data)

    def pause_writing(self) -> None:
        self.writing.append("pause")

    def resume_writing(self) -> None:
        self.writing.append("resume")
        self.resumed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)
        self.changed.set()

    def handshake_done(self, certificate: bytes | None) -> None:
        self.certificate = certificate
        self.done.set_result(None)

    def handshake_failed(self, reason: str) -> None:
        self.failure = reason

    async def has(self, size: int) -> bytes:
        """Return what was received when it has `size` bytes."""
        while len(self.received) < size:
            self.changed.clear()
            await self.changed.wait()
        return bytes(self.received)


@dataclass
class TlsServer:
    """A server whose connections are `accepted`, in their order."""

    context: ssl.SSLContext = field(default_factory=server_side)
    handshakes: Handshakes = field(default_factory=lambda: Handshakes(lambda: 0))
    on_data: Callable[[End, bytes], None] | None = None
    on_made: Callable[[End], object] | None = None
    accepted: list[End] = field(default_factory=list)
    port: int = 0

    async def __aenter__(self) -> "TlsServer":
        self._server = await asyncio.get_running_loop().create_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for end in self.accepted:
            if end.transport is not None:
                end.transport.abort()
        await asyncio.gather(*(end.lost for end in self.accepted if end.transport is not None))

    def _accept(self) -> TlsTransport:
        end = End(on_data=self.on_data, on_made=self.on_made)
        self.accepted.append(end)
        return TlsTransport(
            end,
            lambda: self.context,
            turns=self.handshakes,
            on_done=end.handshake_done,
            on_failed=end.handshake_failed,
        )

    async def connect(self, context: ssl.SSLContext, host: str = "localhost") -> End:
        """Return the end of a client that uses `TlsTransport`, too."""
        end = End()
        await asyncio.get_running_loop().create_connection(
            lambda: TlsTransport(
                end,
                lambda: context,
                server_hostname=host,
                on_done=end.handshake_done,
                on_failed=end.handshake_failed,
            ),
            "127.0.0.1",
            self.port,
        )
        return end
