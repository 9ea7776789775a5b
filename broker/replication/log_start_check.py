"""Replicas that may have lost their beginning, which no leader epoch shows.

A machine that goes down may take an old segment that was never flushed and leave a newer one: the recovered log begins where that one
does, and looks like one whose beginning retention has deleted. So after a start that may have lost something a replica whose log does
not begin at 0 asks its leader where the leader's begins, before its first fetch acknowledges anything; where that is earlier, it is
replicated anew. Until all have asked, this life vouches for nothing (`odradek.broker.quorum.boot_marker`).
"""

from collections.abc import Callable, Iterable

from odradek.cluster.metadata.image import MetadataImage
from odradek.storage.log.log import PartitionLog


class LostHeads:
    """`settled` is called once, when none is left."""

    def __init__(self, settled: Callable[[], None], failed: Callable[[OSError], None]) -> None:
        """`settled` may raise OSError: out of `begin` it goes on, and what it says at any later time `failed` is told."""
        self._settled = settled
        self._failed = failed
        self._open: dict[tuple[str, int], None] = {}

    def begin(self, logs: Iterable[PartitionLog], image: MetadataImage, node_id: int, *, trusted: bool) -> None:
        """Doubt what of `logs` other brokers have, too, unless the start is `trusted` to have lost nothing. Raises OSError."""
        if not trusted:
            for log in logs:
                partition = image.partition(log.topic, log.partition)
                elsewhere = partition is not None and node_id in partition.replicas and len(partition.replicas) > 1
                if elsewhere and log.log_start_offset > 0:
                    self._open[log.topic, log.partition] = None
        if not self._open:
            self._settled()

    def __bool__(self) -> bool:
        return bool(self._open)

    def about(self, topic: str, index: int) -> bool:
        return (topic, index) in self._open

    def settle(self, topic: str, index: int) -> None:
        """The leader has said where its log begins, or this replica has become the leader, or is gone."""
        if (topic, index) in self._open:
            del self._open[topic, index]
            if not self._open:
                try:
                    self._settled()
                except OSError as error:
                    self._failed(error)

    def settle_gone(self, image: MetadataImage, node_id: int) -> None:
        """Nobody is asked about a replica that is not placed here any more."""
        for topic, index in list(self._open):
            partition = image.partition(topic, index)
            if partition is None or node_id not in partition.replicas:
                self.settle(topic, index)
