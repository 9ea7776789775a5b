"""Writing the ends of transactions to partitions that this broker leads.

Used by WriteTxnMarkers and, without any network, by this broker's own coordinator.

A topic may hold the state of a coordinator (`__consumer_offsets`): it takes each marker in as it is written, so that whoever
is told of the marker finds what the transaction has brought (KAFKA-17507).
"""

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Final

from odradek.broker.partition.partition import Partition
from odradek.broker.partition.registry import Partitions
from odradek.broker.partition.waiters import CommitWait
from odradek.coordinator.txn.ports import Marker, MarkerResults, TopicPartition
from odradek.protocol.batch import end_txn_marker
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime import shard
from odradek.runtime.clock import Clock
from odradek.storage.producers.entry import Origin

COMMIT_MS_MAX: Final = 1_000
"""How long the commit of a marker is waited for. Its coordinator asks again; meanwhile the partition holds up the markers of
all others that were asked for with it.
"""
STUCK_MAX: Final = 10_000
"""Markers that are remembered because they were not committed in time."""

_StuckKey = tuple[Partition, int, int, int, int, bool]


ApplyMarker = Callable[[int, shard.Marker, Callable[[], int]], None]
"""Have a marker written by the given function, which returns its offset, and apply it, in the order of the log.

The arguments are (partition, marker, write). Raise Refusal: those of `write`, and COORDINATOR_LOAD_IN_PROGRESS while the log is read.
"""


class MarkerWriter:
    """Appends markers, and tells per partition when each one is committed."""

    def __init__(self, partitions: Partitions, clock: Clock, timeout_ms: int) -> None:
        """`timeout_ms`: a marker that is not committed by then is answered REQUEST_TIMED_OUT, and stays appended."""
        self._partitions = partitions
        self._clock = clock
        self._timeout_ms = min(timeout_ms, COMMIT_MS_MAX)
        self._stuck: dict[_StuckKey, int] = {}
        self._appliers: dict[str, ApplyMarker] = {}

    def apply_with(self, topic: str, apply: ApplyMarker) -> None:
        """Apply each marker that is written to `topic` from now on by `apply`."""
        assert topic not in self._appliers
        self._appliers[topic] = apply

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
                    partition.await_commit(wait, end, self._settler(outcome, key, _stuck_key(partition, marker), end))
        return wait.start(self._timeout_ms)

    def _append(self, marker: Marker, key: TopicPartition, batch: bytes, now_ms: int) -> tuple[Partition, int]:
        partition = self._partitions.get(key.topic, key.partition)
        if partition is None or not partition.online:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        end = self._in_the_log(partition, marker) if self._stuck else None
        if end is not None:
            return partition, end  # another one would not be committed any sooner
        apply = self._appliers.get(key.topic)

        def write() -> int:
            info = partition.append(
                batch,
                origin=Origin.COORDINATOR,
                now_ms=now_ms,
                transaction_version=marker.transaction_version,
            )
            return info.last_offset

        if apply is None:
            return partition, write() + 1
        partition.check_leader()
        taken = shard.Marker(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.commit)
        apply(key.partition, taken, write)
        return partition, partition.log.log_end_offset

    def _in_the_log(self, partition: Partition, marker: Marker) -> int | None:
        """Where the marker ends that was not committed in time, if this is the same one."""
        stuck = _stuck_key(partition, marker)
        end = self._stuck.get(stuck)
        if end is None or not partition.leads:
            return None
        begun = partition.log.producers.has_ongoing_transaction(marker.producer_id, marker.producer_epoch)
        if begun or partition.log.high_watermark >= end:
            del self._stuck[stuck]
        return None if begun else end  # a classic producer's next transaction has the epoch of the one before

    def _settler(
        self, outcome: dict[TopicPartition, ErrorCode], key: TopicPartition, stuck: _StuckKey, end: int
    ) -> Callable[[ErrorCode], None]:
        def settle(error: ErrorCode) -> None:
            outcome[key] = error
            if error is not ErrorCode.REQUEST_TIMED_OUT:
                self._stuck.pop(stuck, None)
                return
            if len(self._stuck) >= STUCK_MAX:
                self._stuck = {known: at for known, at in self._stuck.items() if _is_stuck(known, at)}
            if len(self._stuck) < STUCK_MAX:
                self._stuck[stuck] = end

        return settle


def _stuck_key(partition: Partition, marker: Marker) -> _StuckKey:
    """The leader epoch is part of it: what one leader has written may be lost with the next."""
    return (
        partition,
        partition.leader_epoch,
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.commit,
    )


def _is_stuck(key: _StuckKey, end: int) -> bool:
    partition, leader_epoch = key[0], key[1]
    return partition.leads and partition.leader_epoch == leader_epoch and partition.log.high_watermark < end
