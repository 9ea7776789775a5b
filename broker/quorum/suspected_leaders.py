"""Nodes whose connections have just broken, while nobody knows yet whether they are dead.

A client that loses a connection asks another broker at once who leads now, and is told what is about to change: the node that has just died.
Many clients then wait for a second or more before they ask again, five times as long as the cluster needs for the change. So who
would be told of such a node waits for the verdict, for a bounded time. The broker has lost its own connections to that node in the same moment.
"""

from asyncio import Future, get_running_loop
from typing import TYPE_CHECKING, Final

from odradek.broker.quorum.peers import NEVER_MS, Peers
from odradek.cluster.metadata.cache import MetadataCache
from odradek.runtime.clock import Clock

if TYPE_CHECKING:
    from odradek.cluster.metadata.delta import MetadataDelta
    from odradek.cluster.metadata.image import MetadataImage

DOUBT_MS_MAX: Final = 1_000
"""How long after a connection broke an answer may wait for what comes of it."""


class Doubts:
    """All calls belong on the event loop."""

    def __init__(self, peers: Peers, metadata: MetadataCache, clock: Clock) -> None:
        self._peers = peers
        self._metadata = metadata
        self._clock = clock
        self._lost_ms: dict[int, int] = {}
        self._waiting: list[Future[None]] = []
        peers.on_lost(self._lost)
        metadata.subscribe(self._on_metadata)

    def standing(self) -> bool:
        """May the metadata name a leader that is dead?"""
        return bool(self._lost_ms) and self._left_ms() > 0

    async def settled(self) -> None:
        """Until it is known, or the time is up."""
        while (left_ms := self._left_ms()) > 0:
            changed: Future[None] = get_running_loop().create_future()
            self._waiting.append(changed)
            timer = get_running_loop().call_later(left_ms / 1_000, _finish, changed)
            try:
                await changed
            finally:
                timer.cancel()

    def look_again(self) -> None:
        """Something has become known about a node."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            _finish(each)

    def _left_ms(self) -> int:
        """How long the latest doubt about a broker that the metadata holds for alive may still last."""
        now_ms = self._clock.monotonic_ms()
        left_ms = 0
        for node_id, lost_ms in list(self._lost_ms.items()):
            broker = self._metadata.image.brokers.get(node_id)
            if broker is None or broker.fenced or self._peers.heard_ms(node_id) > lost_ms:
                del self._lost_ms[node_id]
            else:
                left_ms = max(left_ms, lost_ms + DOUBT_MS_MAX - now_ms)
        return left_ms

    def _lost(self, node_id: int, refused: bool) -> None:
        # A node that stays away is no news each time that it is not reached again.
        if self._peers.heard_ms(node_id) >= self._lost_ms.get(node_id, NEVER_MS):
            self._lost_ms[node_id] = self._clock.monotonic_ms()

    def _on_metadata(self, delta: "MetadataDelta", image: "MetadataImage") -> None:
        if self._waiting:
            self.look_again()


def _finish(future: "Future[None]") -> None:
    if not future.done():
        future.set_result(None)
