"""The handshakes of TLS that are under way on the listeners of a node.

A handshake takes from half a millisecond to some milliseconds. Clients can begin any number of them together, and need
not complete them.
"""

from asyncio import get_running_loop
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from odradek.broker.requests.session import origin_of
from odradek.broker.tls.transport import TlsTransport

TURN_US_MAX: Final = 5_000
"""Microseconds of handshakes after which the event loop runs other work. One step more can take some milliseconds."""
UNDER_WAY_MAX: Final = 500
"""Maximum handshakes that have begun and are not complete. Each one takes about 55 KiB of memory.

A handshake above the limit ends the oldest one of the address that has most of them.
"""


class Handshakes:
    """Run the steps of handshakes in turns, in the order in which their bytes arrive."""

    def __init__(self, now_us: Callable[[], int], under_way_max: int = UNDER_WAY_MAX) -> None:
        """`now_us` returns the monotonic time in microseconds. The event loop's time is that of its iteration."""
        self._now_us = now_us
        self._under_way_max = under_way_max
        self._under_way: dict[TlsTransport, str] = {}
        self._ready: deque[TlsTransport] = deque()

    def __len__(self) -> int:
        """Return the number of handshakes that have begun and are not complete."""
        return len(self._under_way)

    def ready(self, transport: TlsTransport) -> None:
        """Call `continue_handshake` of `transport` in its turn."""
        if transport not in self._under_way:
            self._under_way[transport] = origin_of(str((transport.get_extra_info("peername") or ("",))[0]))
            if len(self._under_way) > self._under_way_max:
                self._end_oldest()
        if not self._ready:
            get_running_loop().call_soon(self._turn)
        self._ready.append(transport)

    def ended(self, transport: TlsTransport) -> None:
        """Note that the handshake is complete or has failed, or that the connection is closed."""
        self._under_way.pop(transport, None)

    def _end_oldest(self) -> None:
        most = Counter(self._under_way.values()).most_common(1)[0][0]
        oldest = next(transport for transport, host in self._under_way.items() if host == most)
        oldest.refuse_handshake("too many handshakes are under way")

    def _turn(self) -> None:
        end_us = self._now_us() + TURN_US_MAX
        try:
            while self._ready:
                self._ready.popleft().continue_handshake()
                if self._now_us() >= end_us:
                    break
        finally:  # an exception concerns only its connection
            if self._ready:
                get_running_loop().call_soon(self._turn)
