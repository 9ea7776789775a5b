"""What lies between two hosts, each direction by itself: cut, slow, or closed to datagrams alone.

A cut is what routers do: nothing is told to either end. What TCP sends meanwhile arrives once the cut is over (it is retransmitted), a
connection attempt waits, a datagram is lost.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

    from tests.sim.environment.loop import SimLoop

CLIENTS: Final = "clients"
"""All clients live on one host."""
HOST_SUFFIX: Final = "#"

Link = tuple[str, str]


def host_of(node: str) -> str:
    """The host on which a life of a node (`broker-1.sim#3`) runs; everything else is a client."""
    host, separator, _ = node.partition(HOST_SUFFIX)
    return host if separator else CLIENTS


class Links:
    """State of every directed link; one that is not named is fine."""

    def __init__(self) -> None:
        self.cut_until: dict[Link, float] = {}
        self.slow_until: dict[Link, tuple[float, float]] = {}
        self.datagrams_until: dict[Link, float] = {}
        self.dark: dict[str, None] = {}
        """Hosts without power: they refuse nothing, they say nothing."""
        self._loop: SimLoop | None = None
        self._stalled: dict[Callable[[], None], Link] = {}
        self._waiting: dict[asyncio.Future[None], Link] = {}

    def bind(self, loop: "SimLoop") -> None:
        self._loop = loop

    @property
    def loop(self) -> "SimLoop":
        assert self._loop is not None
        return self._loop

    # -- faults

    def cut(self, source: str, destination: str, seconds: float) -> None:
        """Nothing gets from one to the other for so long; math.inf is for ever."""
        until = self.loop.time() + seconds
        link = (source, destination)
        self.cut_until[link] = max(self.cut_until.get(link, 0.0), until)
        self._look_again(seconds)

    def slow(self, source: str, destination: str, seconds: float, by: float) -> None:
        """Everything takes `by` seconds more."""
        self.slow_until[source, destination] = (self.loop.time() + seconds, by)

    def block_datagrams(self, source: str, destination: str, seconds: float) -> None:
        """A firewall rule: TCP passes, UDP does not."""
        link = (source, destination)
        self.datagrams_until[link] = max(self.datagrams_until.get(link, 0.0), self.loop.time() + seconds)

    def power_off(self, host: str) -> None:
        self.dark[host] = None

    def power_on(self, host: str) -> None:
        if host in self.dark:
            del self.dark[host]
            self.release()

    def heal(self, *, except_host: str = "") -> None:
        """All links are fine again, except those of one host."""
        self.slow_until.clear()
        self.datagrams_until = {link: at for link, at in self.datagrams_until.items() if except_host in link}
        self.cut_until = {link: at for link, at in self.cut_until.items() if except_host in link}
        self.release()

    def _look_again(self, seconds: float) -> None:
        if not math.isinf(seconds):
            self.loop.call_later(seconds + 1e-6, self.release, context=self.loop.context_of("network"))

    # -- questions

    def is_open(self, source: str, destination: str) -> bool:
        if destination in self.dark or source in self.dark:
            return False
        return not self.cut_until or self.cut_until.get((source, destination), 0.0) <= self.loop.time()

    def passes_datagrams(self, source: str, destination: str) -> bool:
        if not self.is_open(source, destination):
            return False
        return self.datagrams_until.get((source, destination), 0.0) <= self.loop.time()

    def delay(self, source: str, destination: str) -> float:
        """Seconds on top of the latency."""
        if not self.slow_until:
            return 0.0
        until, by = self.slow_until.get((source, destination), (0.0, 0.0))
        return by if until > self.loop.time() else 0.0

    # -- waiting

    def when_open(self, link: Link, callback: Callable[[], None]) -> None:
        """Call back once the link is open."""
        self._stalled[callback] = link

    async def opened(self, source: str, destination: str, timeout: float) -> None:
        """Until both directions are open. Raises TimeoutError."""
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
        """Let go on what waits for links that are open now."""
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
