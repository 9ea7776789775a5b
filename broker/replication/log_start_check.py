"""Detect replicas that lost a prefix of their log in an unclean restart. Leader epochs do not show such a loss.

1. A machine fails, and loses an old segment that was never flushed, but keeps a newer one.
2. The recovered log starts at the newer segment. It cannot be distinguished from a log whose prefix was deleted by
   retention.
3. So after a start that may have lost records, a replica whose log does not start at 0 requests the log start offset of
   its leader, before its first fetch acknowledges any record.
4. If the leader's log starts earlier, the replica discards its log and replicates from the leader's log start.

Until all such replicas are checked, this run writes no boot marker (`odradek.broker.quorum.boot_marker`).
"""

from collections.abc import Callable, Iterable

from odradek.cluster.metadata.image import MetadataImage
from odradek.storage.log.log import PartitionLog


class LogStartChecks:
    """The replicas of this broker whose log start is not checked yet."""

    def __init__(self, completed: Callable[[], None], failed: Callable[[OSError], None]) -> None:
        """`completed` is called once, when no replica is left.

        `failed` is called with its OSError, except during `begin`.
        """
        self._completed = completed
        self._failed = failed
        self._open: dict[tuple[str, int], None] = {}

    def begin(self, logs: Iterable[PartitionLog], image: MetadataImage, node_id: int, *, trusted: bool) -> None:
        """Select the `logs` to check: those with replicas on other brokers.

        `trusted` means that the start lost nothing.

        Raise the OSError of `completed`.
        """
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
        """Return True if the log start of the replica is not checked yet."""
        return (topic, index) in self._open

    def complete(self, topic: str, index: int) -> None:
        """Complete the check of one replica, and call `completed` after the last one."""
        if (topic, index) in self._open:
            del self._open[topic, index]
            if not self._open:
                try:
                    self._completed()
                except OSError as error:
                    self._failed(error)

    def complete_removed(self, image: MetadataImage, node_id: int) -> None:
        """Complete the checks of replicas that this broker no longer has."""
        for topic, index in list(self._open):
            partition = image.partition(topic, index)
            if partition is None or node_id not in partition.replicas:
                self.complete(topic, index)
