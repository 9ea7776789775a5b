"""Writing the ends of transactions to partitions that this broker leads.

Used by WriteTxnMarkers and, without any network, by this broker's own coordinator.
"""

from asyncio import Future
from collections.abc import Callable, Sequence

from broker.partition import Partition
from broker.partitions import Partitions
from broker.waiters import CommitWait
from coordinator.txn.ports import Marker, MarkerResults, TopicPartition
from protocol.batch import end_txn_marker
from protocol.errors import ErrorCode, Refusal
from runtime.clock import Clock
from storage.producer_entry import Origin


class MarkerWriter:
    """Appends markers, and tells per partition when each one is committed."""

    def __init__(self, partitions: Partitions, clock: Clock, timeout_ms: int) -> None:
        """`timeout_ms`: a marker that is not committed by then is answered REQUEST_TIMED_OUT, and stays appended."""
        self._partitions = partitions
        self._clock = clock
        self._timeout_ms = timeout_ms

    def write(self, markers: Sequence[Marker]) -> Future[MarkerResults]:
        """The outcome of every marker on each of its partitions; done on return when all are committed already."""
        results: list[dict[TopicPartition, ErrorCode]] = [{} for _ in markers]
        wait: CommitWait[MarkerResults] = CommitWait(results)
        now_ms = self._clock.wall_ms()
        for marker, outcome in zip(markers, results, strict=True):
            batch = end_txn_marker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                commit=marker.commit,
                timestamp=now_ms,
            )
            for key in marker.partitions:
                outcome[key] = ErrorCode.NONE
                try:
                    partition, end = self._append(marker, key, batch, now_ms)
                except Refusal as refusal:
                    outcome[key] = refusal.error
                    continue
                if partition.log.high_watermark < end:
                    partition.await_commit(wait, end, _settler(outcome, key))
        return wait.start(self._timeout_ms)

    def _append(self, marker: Marker, key: TopicPartition, batch: bytes, now_ms: int) -> tuple[Partition, int]:
        partition = self._partitions.get(key.topic, key.partition)
        if partition is None or not partition.online:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        info = partition.append(
            batch,
            origin=Origin.COORDINATOR,
            now_ms=now_ms,
            transaction_version=marker.transaction_version,
        )
        return partition, info.last_offset + 1


def _settler(outcome: dict[TopicPartition, ErrorCode], key: TopicPartition) -> Callable[[ErrorCode], None]:
    def settle(error: ErrorCode) -> None:
        outcome[key] = error

    return settle
