"""Links between two hosts, one per direction: each can be partitioned, slow, or closed to datagrams.

A partition is silent, as in a real network. TCP data sent meanwhile arrives after it (retransmission), a connection
attempt waits, and a datagram is lost.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

    from odradek.simulation.environment.loop import SimLoop

CLIENTS: Final = "clients"
"""The host of all clients."""
HOSTILE: Final = "hostile.sim"
"""The host of the hostile client. Faults of links and frames do not affect it."""
HOST_SUFFIX: Final = "#"

Link = tuple[str, str]


def host_of(node: str) -> str:
    """Return the host of an incarnation of a node (`broker-1.sim#3`). Other names, except HOSTILE, are clients."""
    if node == HOSTILE:
        return HOSTILE
    host, separator, _ = node.partition(HOST_SUFFIX)
    return host if separator else CLIENTS


class Links:
    """State of the directed links. A link without an entry is open."""

    def __init__(self) -> None:
        self.partitioned_until: dict[Link, float] = {}
        self.slow_until: dict[Link, tuple[float, float]] = {}
        self.datagrams_until: dict[Link, float] = {}
        self.dark: dict[str, None] = {}
        """Hosts without power. They send no packets, and refuse none."""
        self._loop: SimLoop | None = None
        self._stalled: dict[Callable[[], None], Link] = {}
        self._waiting: dict[asyncio.Future[None], Link] = {}

    def bind(self, loop: "SimLoop") -> None:
        self._loop = loop

    @property
    def loop(self) -> "SimLoop":
        assert self._loop is not None
        return self._loop

    # ---- faults -----------------------------------------------------------------------------------------------------

    def partition(self, source: str, destination: str, seconds: float) -> None:
        """Partition the link for `seconds` (math.inf: permanently)."""
        until = self.loop.time() + seconds
        link = (source, destination)
        self.partitioned_until[link] = max(self.partitioned_until.get(link, 0.0), until)
        self._schedule_release(seconds)

    def join(self, host: str, other_host: str) -> None:
        """End the partitions of both links between two hosts."""
        for link in ((host, other_host), (other_host, host)):
            self.partitioned_until.pop(link, None)
        self.release()

    def slow(self, source: str, destination: str, seconds: float, by: float) -> None:
        """Delay everything on the link by `by` seconds, for `seconds`."""
        self.slow_until[source, destination] = (self.loop.time() + seconds, by)

    def block_datagrams(self, source: str, destination: str, seconds: float) -> None:
        """Block UDP on the link for `seconds`, like a firewall rule. TCP passes."""
        link = (source, destination)
        self.datagrams_until[link] = max(self.datagrams_until.get(link, 0.0), self.loop.time() + seconds)

    def power_off(self, host: str) -> None:
        self.dark[host] = None

    def power_on(self, host: str) -> None:
        if host in self.dark:
            del self.dark[host]
            self.release()

    def heal(self, *, except_host: str = "") -> None:
        """Restore all links, except those of `except_host`."""
        self.slow_until.clear()
        self.datagrams_until = {link: until for link, until in self.datagrams_until.items() if except_host in link}
        self.partitioned_until = {link: until for link, until in self.partitioned_until.items() if except_host in link}
        self.release()

    def _schedule_release(self, seconds: float) -> None:
        if not math.isinf(seconds):
            self.loop.call_later(seconds + 1e-6, self.release, context=self.loop.context_of("network"))

    # state

    def is_open(self, source: str, destination: str) -> bool:
        if destination in self.dark or source in self.dark:
            return False
        return not self.partitioned_until or self.partitioned_until.get((source, destination), 0.0) <= self.loop.time()

    def passes_datagrams(self, source: str, destination: str) -> bool:
        if not self.is_open(source, destination):
            return False
        return self.datagrams_until.get((source, destination), 0.0) <= self.loop.time()

    def delay(self, source: str, destination: str) -> float:
        """Return the additional delay in seconds."""
        if not self.slow_until:
            return 0.0
        until, by = self.slow_until.get((source, destination), (0.0, 0.0))
        return by if until > self.loop.time() else 0.0

    # ---- waiting ----------------------------------------------------------------------------------------------------

    def when_open(self, link: Link, callback: Callable[[], None]) -> None:
        """Call `callback` once the link is open."""
        self._stalled[callback] = link

    async def opened(self, source: str, destination: str, timeout: float) -> None:
        """Wait until both directions are open. Raise TimeoutError after `timeout` seconds."""
        loop = self.loop
        deadline = loop.time() + timeout
        for link in ((source, destination), (destination, source)):
            while not self.is_open(*link):
                future = loop.create_future()
                self._waiting[future] = link
                timer = loop.call_at(deadline, _give_up, future)
                try:
                    await future
                finally:
                    timer.cancel()
                    self._waiting.pop(future, None)

    def release(self) -> None:
        """Resume everything that waits for a link that is open now."""
        for callback, link in list(self._stalled.items()):
            if self.is_open(*link):
                del self._stalled[callback]
                callback()
        for future, link in list(self._waiting.items()):
            if self.is_open(*link) and not future.done():
                future.set_result(None)


def _give_up(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_exception(TimeoutError(110, "connection timed out"))
