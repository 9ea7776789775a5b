"""Detect replicas that lost a prefix of their log in an unclean restart. Leader epochs do not show such a loss.

A machine that fails may lose an old segment that was never flushed, and keep a newer one. The recovered log begins where the newer
segment does, and looks like a log whose prefix was deleted by retention. So after a start that may have lost something, a replica whose
log does not begin at 0 requests its leader's log start before its first fetch acknowledges anything. A replica whose leader has an
earlier log start is replicated again from there. Until all such replicas are checked, this run writes no boot marker
(`odradek.broker.quorum.boot_marker`).
"""

from collections.abc import Callable, Iterable

from odradek.cluster.metadata.image import MetadataImage
from odradek.storage.log.log import PartitionLog


class LogStartChecks:
    """The replicas whose log start is not checked yet."""

    def __init__(self, completed: Callable[[], None], failed: Callable[[OSError], None]) -> None:
        """`completed` is called once, when no replica is left. `failed` is called with its OSError, except during `begin`."""
        self._completed = completed
        self._failed = failed
        self._open: dict[tuple[str, int], None] = {}

    def begin(self, logs: Iterable[PartitionLog], image: MetadataImage, node_id: int, *, trusted: bool) -> None:
        """Check the `logs` that other brokers have too, unless the start is `trusted` to have lost nothing. Raise OSError."""
        if not trusted:
            for log in logs:
                partition = image.partition(log.topic, log.partition)
                elsewhere = partition is not None and node_id in partition.replicas and len(partition.replicas) > 1
                if elsewhere and log.log_start_offset > 0:
                    self._open[log.topic, log.partition] = None
        if not self._open:
            self._completed()

    def __bool__(self) -> bool:
        return bool(self._open)

    def needs(self, topic: str, index: int) -> bool:
        """Return whether the log start of the replica is not checked yet."""
        return (topic, index) in self._open

    def complete(self, topic: str, index: int) -> None:
        """Complete the check: the leader's log start is known, this broker leads the partition, or the replica is gone."""
        if (topic, index) in self._open:
            del self._open[topic, index]
            if not self._open:
                try:
                    self._completed()
                except OSError as error:
                    self._failed(error)

    def complete_removed(self, image: MetadataImage, node_id: int) -> None:
        """Complete the checks of replicas that are not on this broker any more."""
        for topic, index in list(self._open):
            partition = image.partition(topic, index)
            if partition is None or node_id not in partition.replicas:
                self.complete(topic, index)
