"""TLS between a transport and its protocol, for connections that a listener accepts and for those to other nodes.

The protocol sees a usual transport. `loop.start_tls` is not used, for two reasons:

* A handshake needs up to some milliseconds. `odradek.broker.network.handshakes` bounds that work per iteration of the
  event loop.
* The limits of memory need the number of all unsent bytes. The TLS transports of asyncio and uvloop do not count bytes
  that they have passed on, and encrypt a response of any size in one step.
"""

import ssl
from asyncio import BaseTransport, BufferedProtocol, TimerHandle, Transport, get_running_loop
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from odradek.broker.tls.contexts import reason_of
from odradek.broker.tls.records import DATA_BYTES_MAX, Records

if TYPE_CHECKING:
    from odradek.protocol.schema import Buffer

HANDSHAKE_SECONDS_MAX: Final = 10.0
"""Maximum seconds for the handshake of a connection, while the node reads it.

Kafka closes such a connection after connections.max.idle.ms, which is 600 seconds by default.
"""
READ_BYTES_MAX: Final = 65_536
"""Maximum encrypted bytes per read. A connection that has to pause reads once more at most."""
ENCRYPTED_BYTES_MAX: Final = 262_144
"""Encrypted bytes of one connection that wait for the network, above which it encrypts no more."""
PASSED_ON_BYTES: Final = 65_536
"""Encrypted bytes that are passed to the network together."""
_received: Final = memoryview(bytearray(READ_BYTES_MAX))
"""Receive buffer of all connections. Each read is passed to the TLS library before the next one."""


class HandshakeTurns(Protocol):
    """Order of the steps of handshakes (`odradek.broker.network.handshakes.Handshakes`)."""

    def ready(self, transport: "TlsTransport") -> None:
        """Call `continue_handshake` of the transport in its turn."""

    def ended(self, transport: "TlsTransport") -> None:
        """Note that the handshake is complete or has failed, or that the connection is closed."""


class TlsTransport(BufferedProtocol, Transport):
    """Transport of a protocol, with TLS. It is the protocol of the transport below.

    `connection_made` of the protocol is called before the handshake, so that limits of connections apply first. Data is
    received and sent after the handshake.
    """

    def __init__(
        self,
        protocol: BufferedProtocol,
        context: Callable[[], ssl.SSLContext],
        *,
        server_hostname: str | None = None,
        turns: HandshakeTurns | None = None,
        on_done: Callable[[bytes | None], None] = lambda _: None,
        on_failed: Callable[[str], None],
    ) -> None:
        """`context` is called when the handshake begins. With `turns`, this is the side of the server.

        `server_hostname` is the host that a client connects to. `on_done` receives the verified certificate of the
        peer in DER, or None if it presented none. `on_failed` receives the reason of a failure of TLS; the connection
        is closed then.
        """
        super().__init__()
        self._protocol = protocol
        self._context = context
        self._server_hostname = server_hostname
        self._turns = turns
        self._on_done = on_done
        self._on_failed = on_failed
        self._loop = get_running_loop()
        self._below: Transport | None = None
        self._tls: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._records = Records()
        """Received records after the handshake, which are decrypted one at a time."""
        self._outgoing = ssl.MemoryBIO()
        self._established = False
        self._deadline: TimerHandle | None = None
        self._error: OSError | None = None
        self._closing = False
        self._paused = False
        """True while the protocol has paused the reading."""
        self._awaits_turn = False
        """True while received bytes of the handshake wait for their turn. The connection is not read meanwhile."""
        self._resume_planned = False
        self._unencrypted: deque[memoryview] = deque()
        self._unencrypted_bytes = 0
        self._high_bytes = DATA_BYTES_MAX
        self._below_is_full = False
        self._writing_paused = False

    # ---- events of the transport below ------------------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        below = self._below = cast("Transport", transport)
        below.set_write_buffer_limits(high=ENCRYPTED_BYTES_MAX // 2, low=0)
        self._watch_handshake()
        self._protocol.connection_made(self)
        if self._turns is None and not below.is_closing():
            self.continue_handshake()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        if self._established:
            self._records.add(_received[:nbytes])
            self._deliver()
        else:
            self._incoming.write(_received[:nbytes])
            if not self._paused:
                self._await_turn()
        if self._paused:  # the transport below can begin to read after a pause in `connection_made`
            self._read_below()

    def eof_received(self) -> bool:
        self.close()
        return True  # `close` closes the transport below after sending what is unsent

    def pause_writing(self) -> None:
        self._below_is_full = True

    def resume_writing(self) -> None:
        self._below_is_full = False
        self._encrypt()
        if self._writing_paused and not self._unencrypted and not self._below_is_full:
            self._writing_paused = False
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._end_handshake()
        self._tls = None
        self._unencrypted.clear()
        self._unencrypted_bytes = 0
        self._protocol.connection_lost(exc or self._error)

    # ---- handshake --------------------------------------------------------------------------------------------------

    def continue_handshake(self) -> None:
        """Process the received bytes of the handshake."""
        self._awaits_turn = False
        below = self._below
        if self._paused or self._closing or below is None or below.is_closing():
            return
        try:
            if self._tls is None:
                self._tls = self._context().wrap_bio(
                    self._incoming, self._outgoing, self._turns is not None, self._server_hostname
                )
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._pass_on()
            self._read_below()
            return
        except OSError as error:  # ssl.SSLError
            self._fail(error)
            return
        self._established = True
        self._records.add(self._incoming.read())
        self._end_handshake()
        self._on_done(self._tls.getpeercert(binary_form=True))
        self._encrypt()
        self._deliver()
        self._read_below()

    def _await_turn(self) -> None:
        if self._turns is None:
            self.continue_handshake()
        elif not self._awaits_turn:
            self._awaits_turn = True
            self._read_below()
            self._turns.ready(self)

    def refuse_handshake(self, reason: str) -> None:
        """Close the connection, whose handshake is not complete."""
        self._end_handshake()
        self._on_failed(reason)
        self.abort()

    def _watch_handshake(self) -> None:
        if not self._established and self._deadline is None:
            self._deadline = self._loop.call_later(HANDSHAKE_SECONDS_MAX, self._handshake_timed_out)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _handshake_timed_out(self) -> None:
        self._error = TimeoutError("the TLS handshake did not end in time")
        self.refuse_handshake(f"the handshake did not end within {HANDSHAKE_SECONDS_MAX:g} seconds")

    def _end_handshake(self) -> None:
        self._stop_watching()
        if self._turns is not None:
            self._turns.ended(self)

    def _fail(self, error: OSError) -> None:
        """Send the alert that describes `error`, and close the connection."""
        self._error = error
        self._closing = True
        self._end_handshake()
        self._on_failed(reason_of(error) if isinstance(error, ssl.SSLError) else str(error))
        self._pass_on()
        if self._below is not None:
            self._below.close()

    # ---- reading ----------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Decrypt the received records into the buffers of the protocol, until it pauses the reading."""
        tls, protocol = self._tls, self._protocol
        more = True
        while more and tls is not None and not self._paused and not self._closing:
            buffer, filled, error, ended = memoryview(protocol.get_buffer(-1)), 0, None, False
            try:
                while filled < len(buffer) and not ended:
                    if not tls.pending() and not self._next_record():
                        more = False
                        break
                    size = self._decrypted(tls, buffer[filled:])
                    ended = size == 0
                    filled += size or 0
            except OSError as failure:  # ssl.SSLError
                error = failure
            if filled:
                protocol.buffer_updated(filled)
            if error is not None:
                if not self._closing:
                    self._fail(error)
                return
            if ended:
                self.close()  # the peer has closed the connection
                return
        self._pass_on()  # the response to an update of keys

    def _next_record(self) -> bool:
        """Pass the next record to the TLS library. Return False if it has not arrived."""
        record = self._records.next()
        if record is None:
            return False
        self._incoming.write(record)
        return True

    def _decrypted(self, tls: ssl.SSLObject, buffer: memoryview) -> int | None:
        """Decrypt data into `buffer`, and return its size. Return None for a record without data, 0 at the end."""
        try:
            size = int(tls.read(len(buffer), buffer))
        except ssl.SSLWantReadError:
            self._records.count(has_data=False)
            return None
        self._records.count(has_data=True)
        return size

    def _read_below(self) -> None:
        """Read the transport below unless the protocol has paused, or bytes of the handshake wait."""
        below = self._below
        if below is None or below.is_closing():
            return
        wanted = not (self._paused or self._awaits_turn or self._closing)
        if wanted and not below.is_reading():
            below.resume_reading()
        elif not wanted and below.is_reading():
            below.pause_reading()

    def pause_reading(self) -> None:
        self._paused = True
        self._stop_watching()
        self._read_below()

    def resume_reading(self) -> None:
        self._paused = False
        if not self._resume_planned:
            self._resume_planned = True
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._resume_planned = False
        if self._paused or self._closing:
            return
        if self._established:
            self._deliver()
        else:
            self._watch_handshake()
            if self._incoming.pending:
                self._await_turn()
        self._read_below()

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    # ---- writing ----------------------------------------------------------------------------------------------------

    def write(self, data: "Buffer") -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: "Iterable[Buffer]") -> None:
        for data in list_of_data:
            chunk = memoryview(data)
            if chunk:
                self._unencrypted.append(chunk)
                self._unencrypted_bytes += len(chunk)
        self._encrypt()
        if not self._writing_paused and self.get_write_buffer_size() > self._high_bytes:
            self._writing_paused = True
            self._protocol.pause_writing()

    def _encrypt(self) -> None:
        """Encrypt data while the transport below has less than ENCRYPTED_BYTES_MAX."""
        tls, below = self._tls, self._below
        if not self._established or tls is None or below is None or below.is_closing():
            return
        unencrypted, outgoing = self._unencrypted, self._outgoing
        try:
            while unencrypted and not self._below_is_full:
                data = self._next_data()
                while data:
                    data = data[tls.write(data) :]
                if outgoing.pending >= PASSED_ON_BYTES:
                    self._pass_on()
        except ssl.SSLError as error:
            self._fail(error)
            return
        if self._closing and not unencrypted:
            self._close_below(tls, below)
        else:
            self._pass_on()

    def _next_data(self) -> memoryview:
        """Remove and return the next data for one TLS record. Small chunks are joined."""
        unencrypted = self._unencrypted
        first = unencrypted.popleft()
        if len(first) > DATA_BYTES_MAX:
            unencrypted.appendleft(first[DATA_BYTES_MAX:])
            first = first[:DATA_BYTES_MAX]
        elif unencrypted and len(first) < DATA_BYTES_MAX:
            parts, left = [first], DATA_BYTES_MAX - len(first)
            while unencrypted and left:
                part = unencrypted.popleft()
                if len(part) > left:
                    unencrypted.appendleft(part[left:])
                    part = part[:left]
                parts.append(part)
                left -= len(part)
            first = memoryview(b"".join(parts))
        self._unencrypted_bytes -= len(first)
        return first

    def _pass_on(self) -> None:
        """Pass encrypted bytes to the transport below."""
        if self._outgoing.pending and self._below is not None and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Pause the writing of the protocol above `high` bytes, until almost all are sent.

        `low` has no effect: the writing resumes when all bytes are encrypted and the transport below has no more than
        half of ENCRYPTED_BYTES_MAX.
        """
        self._high_bytes = DATA_BYTES_MAX if high is None else high

    def get_write_buffer_size(self) -> int:
        below = 0 if self._below is None else self._below.get_write_buffer_size()
        return self._unencrypted_bytes + self._outgoing.pending + below

    def can_write_eof(self) -> bool:
        return False

    # ---- end --------------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing or self._below is None or self._below.is_closing()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._read_below()
        if self._below is not None and not self._established:
            self._end_handshake()
            self._below.close()
        else:
            self._encrypt()

    def _close_below(self, tls: ssl.SSLObject, below: Transport) -> None:
        """Notify the peer that no more data follows, and close the transport below."""
        with suppress(ssl.SSLError):  # the peer has not closed its side, which is not awaited
            tls.unwrap()
        self._pass_on()
        below.close()

    def abort(self) -> None:
        self._closing = True
        if self._below is not None:
            self._below.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._below is None else self._below.get_extra_info(name, default)

    def get_protocol(self) -> BufferedProtocol:
        return self._protocol
