"""Delay metadata responses that may name a leader whose failure is not declared yet.

1. A broker fails, and a client loses its connection to it. The client immediately sends Metadata to another broker.
2. That broker still has the failed broker as the leader in its metadata image. The client receives a useless leader.
3. The client waits a second or more before it sends Metadata again. The election takes about a fifth of that time.

The other broker lost its own connection to the failed broker at step 1. It delays the response until the partitions
in it have other leaders, or until the failure detector has decided, at most SUSPICION_MS_MAX.

The controller fences a broker after the elections for all of its partitions. With 10,000 partitions, they take most of
a second, and the first ones are visible after a few milliseconds.
"""

from asyncio import Future, get_running_loop
from collections.abc import Collection
from itertools import islice
from typing import Final

from odradek.broker.quorum.peers import Peers
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import MetadataImage
from odradek.runtime.clock import NEVER_MS, Clock

SUSPICION_MS_MAX: Final = 1_000
"""Maximum milliseconds that a Metadata response is delayed after the connection to a node was lost.

Longer than a suspicion lasts (odradek.membership.suspicion.timeout.ms, 800 ms by default).
"""
PARTITIONS_CHECKED_MAX: Final = 1_000
"""Maximum partitions of a response whose leaders are checked, which takes less than 0.1 ms. A response with more
partitions waits until each suspected broker is fenced."""


class SuspectedLeaders:
    """Track the nodes whose connections were lost. All calls belong on the event loop."""

    def __init__(self, peers: Peers, metadata: MetadataCache, clock: Clock) -> None:
        self._peers = peers
        self._metadata = metadata
        self._clock = clock
        self._lost_ms: dict[int, int] = {}
        self._waiting: list[Future[None]] = []
        peers.on_lost(self._lost)
        metadata.subscribe(self._on_metadata)

    def any(self, topics: Collection[str] | None = None) -> bool:
        """Return True if the metadata image may name a leader that failed, of a partition of `topics`.

        None: of any partition, or as the controller.
        """
        return bool(self._lost_ms) and self._left_ms() > 0 and (topics is None or self._lead(topics))

    async def decided(self, topics: Collection[str] | None = None) -> None:
        """Return when `any` is False: after an election, a decision of the failure detector, or SUSPICION_MS_MAX."""
        while self.any(topics):
            left_ms = self._left_ms()
            changed: Future[None] = get_running_loop().create_future()
            self._waiting.append(changed)
            timer = get_running_loop().call_later(left_ms / 1_000, _finish, changed)
            try:
                await changed
            finally:
                timer.cancel()

    def recheck(self) -> None:
        """Check the suspected nodes again: the state of a node changed."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            _finish(future)

    def _lead(self, topics: Collection[str]) -> bool:
        """Return True if a suspected node leads a partition of `topics`, or if they are too many for a check."""
        image = self._metadata.image
        known = (topic for name in topics if (topic := image.topic(name)) is not None)
        leaders = (partition.leader for topic in known for partition in topic.partitions.values())
        checked = list(islice(leaders, PARTITIONS_CHECKED_MAX + 1))
        return len(checked) > PARTITIONS_CHECKED_MAX or not self._lost_ms.keys().isdisjoint(checked)

    def _left_ms(self) -> int:
        """Return the milliseconds until the last suspicion of an unfenced broker expires; 0 without a suspicion."""
        now_ms = self._clock.monotonic_ms()
        left_ms = 0
        for node_id, lost_ms in list(self._lost_ms.items()):
            broker = self._metadata.image.brokers.get(node_id)
            if broker is None or broker.fenced or self._peers.last_contact_ms(node_id) > lost_ms:
                del self._lost_ms[node_id]
            else:
                left_ms = max(left_ms, lost_ms + SUSPICION_MS_MAX - now_ms)
        return left_ms

    def _lost(self, node_id: int, refused: bool) -> None:
        # Each failed attempt to reconnect reports the loss again. Only the first one counts.
        if self._peers.last_contact_ms(node_id) >= self._lost_ms.get(node_id, NEVER_MS):
            self._lost_ms[node_id] = self._clock.monotonic_ms()

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self._waiting:
            self.recheck()


def _finish(future: "Future[None]") -> None:
    if not future.done():
        future.set_result(None)
