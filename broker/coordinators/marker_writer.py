"""Append transaction markers to partitions that this broker leads.

The handler of WriteTxnMarkers uses it, and this broker's transaction coordinator, which calls it directly.

A partition of `__consumer_offsets` holds the state of a group coordinator. The coordinator applies a marker in the same
step in which the marker is appended. So once the marker is acknowledged, a fetch of offsets returns those of the
transaction (KAFKA-17507).
"""

from asyncio import Future, get_running_loop
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
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
"""Maximum wait for the commit of a marker, in milliseconds. A partition that cannot commit delays the response for
all other markers of the request; the coordinator retries the marker, so a short wait costs little."""
UNCOMMITTED_MAX: Final = 10_000
"""Maximum appended but uncommitted markers that a broker remembers after their time-out (about 2.5 MiB)."""

UNCOMMITTED_CHECKED_MAX: Final = 2
"""Remembered markers that are checked per marker that times out while UNCOMMITTED_MAX are remembered. The broker
forgets the committed ones. Two per new marker free capacity faster than new markers take it."""
MARKERS_PER_TURN: Final = 200
"""Maximum markers that one call of `MarkerWriter.write` appends per turn of the event loop, one per transaction and
partition. A marker takes about 25 µs."""

NOTHING_TO_COMMIT: Final = 0
"""End offset of a marker that is not appended."""

_MarkerKey = tuple[Partition, int, int, int, int, bool]
_Target = tuple[Marker, bytes, TopicPartition, dict[TopicPartition, ErrorCode]]
"""Marker, its batch, a partition that needs it, and the errors of this marker by partition."""


ApplyMarker = Callable[[int, shard.Marker, Callable[[], int]], None]
"""Append a marker and apply it to the coordinator's state, in the order of the log.

The arguments are the partition index, the marker, and a function that appends the marker and returns its offset. Raise
the Refusal of that function, or Refusal(COORDINATOR_LOAD_IN_PROGRESS) while the coordinator loads the partition.
"""


class MarkerWriter:
    """Writer of transaction markers to the partitions of one broker."""

    def __init__(
        self, partitions: Partitions, clock: Clock, timeout_ms: int, coordinator_epoch_max: Callable[[], int]
    ) -> None:
        """`coordinator_epoch_max` returns the highest leader epoch of the partitions of `__transaction_state`.

        `timeout_ms` bounds the wait for a commit, together with COMMIT_MS_MAX.

        A marker that is not committed by then results in REQUEST_TIMED_OUT, and stays appended.
        """
        self._partitions = partitions
        self._clock = clock
        self._timeout_ms = min(timeout_ms, COMMIT_MS_MAX)
        self._uncommitted: dict[_MarkerKey, int] = {}
        self._appliers: dict[str, ApplyMarker] = {}
        self._coordinator_epoch_max = coordinator_epoch_max

    def apply_with(self, topic: str, apply: ApplyMarker) -> None:
        """Pass each marker for `topic` to `apply` from now on. A topic has at most one such function."""
        assert topic not in self._appliers
        self._appliers[topic] = apply

    def write(self, markers: Sequence[Marker]) -> Future[MarkerResults]:
        """Append the markers.

        The future yields the error of each marker in each of its partitions, when all are committed.

        The future is already done if no marker has to wait for its commit, and there are at most MARKERS_PER_TURN.
        More markers are appended in later turns of the event loop.
        """
        results: list[dict[TopicPartition, ErrorCode]] = [{} for _ in markers]
        wait: CommitWait[MarkerResults] = CommitWait(results)
        count = sum(len(marker.partitions) for marker in markers)
        self._append_some(wait, _targets(markers, results, self._clock.wall_ms()), count)
        return wait.future

    def _append_some(self, wait: CommitWait[MarkerResults], targets: Iterator[_Target], count: int) -> None:
        """Append the next MARKERS_PER_TURN of `count` markers, and the others in the next turns of the event loop."""
        now_ms = self._clock.wall_ms()
        for marker, batch, key, outcome in islice(targets, MARKERS_PER_TURN):
            outcome[key] = ErrorCode.NONE
            try:
                partition, end = self._append(marker, key, batch, now_ms)
            except Refusal as refusal:
                outcome[key] = refusal.error
                continue
            if partition.log.high_watermark < end:
                partition.await_commit(wait, end, self._settler(outcome, key, _marker_key(partition, marker), end))
        if count > MARKERS_PER_TURN:
            get_running_loop().call_soon(self._append_rest, wait, targets, count - MARKERS_PER_TURN)
        else:
            wait.start(self._timeout_ms)

    def _append_rest(self, wait: CommitWait[MarkerResults], targets: Iterator[_Target], count: int) -> None:
        """Append the next markers, unless the future was cancelled. The future yields an unexpected exception."""
        if wait.future.done():
            return
        try:
            self._append_some(wait, targets, count)
        except Exception as failure:  # noqa: BLE001  a bug: the caller of `write` reports it
            wait.future.set_exception(failure)

    def _append(self, marker: Marker, key: TopicPartition, batch: bytes, now_ms: int) -> tuple[Partition, int]:
        partition = self._partitions.get(key.topic, key.partition)
        if partition is None or not partition.online:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        end = self._uncommitted_end(partition, marker) if self._uncommitted else None
        if end is not None:
            return partition, end  # A second copy of the marker would not be committed earlier.
        self._check_coordinator_epoch(partition, marker)
        if partition.leads and _is_superseded(partition, marker):
            return partition, NOTHING_TO_COMMIT
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
        shard_marker = shard.Marker(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.commit)
        apply(key.partition, shard_marker, write)
        return partition, partition.log.log_end_offset

    def _check_coordinator_epoch(self, partition: Partition, marker: Marker) -> None:
        """Raise Refusal(UNKNOWN_LEADER_EPOCH) if no coordinator that this broker knows can have the marker's epoch.

        A partition fences lower coordinator epochs. A forged epoch would fence the coordinator of an open transaction,
        which would then limit the last stable offset permanently. The coordinator of an epoch that this broker does not
        know yet retries. The epoch that the partition has already is permitted, so that operators can abort.
        """
        if marker.coordinator_epoch > self._coordinator_epoch_max():
            entry = partition.log.producers.entries.get(marker.producer_id)
            if entry is None or marker.coordinator_epoch > entry.coordinator_epoch:
                raise Refusal(
                    ErrorCode.UNKNOWN_LEADER_EPOCH,
                    f"coordinator epoch {marker.coordinator_epoch} is above the epochs of all transaction coordinators",
                )

    def _uncommitted_end(self, partition: Partition, marker: Marker) -> int | None:
        """Return the end offset of an earlier append of the same marker that is not committed yet, or None.

        1. A marker is appended, but followers are slow, and it is not committed within `timeout_ms`.
        2. The coordinator retries the marker. Without this check, each retry would append another copy.
        """
        marker_key = _marker_key(partition, marker)
        end = self._uncommitted.get(marker_key)
        if end is None or not partition.leads:
            return None
        next_is_open = partition.log.producers.has_ongoing_transaction(marker.producer_id, marker.producer_epoch)
        if next_is_open or partition.log.high_watermark >= end:
            del self._uncommitted[marker_key]
        # A producer before transaction version 2 keeps its epoch for the next transaction, which needs a marker of its
        # own.
        return None if next_is_open else end

    def _settler(
        self, outcome: dict[TopicPartition, ErrorCode], key: TopicPartition, marker_key: _MarkerKey, end: int
    ) -> Callable[[ErrorCode], None]:
        def settle(error: ErrorCode) -> None:
            outcome[key] = error
            if error is not ErrorCode.REQUEST_TIMED_OUT:
                self._uncommitted.pop(marker_key, None)
                return
            if len(self._uncommitted) >= UNCOMMITTED_MAX:
                self._forget_committed()
            if len(self._uncommitted) < UNCOMMITTED_MAX:
                self._uncommitted[marker_key] = end

        return settle

    def _forget_committed(self) -> None:
        """Check the next UNCOMMITTED_CHECKED_MAX remembered markers. Move those that are uncommitted to the end."""
        for known in list(islice(self._uncommitted, UNCOMMITTED_CHECKED_MAX)):
            offset = self._uncommitted.pop(known)
            if _is_uncommitted(known, offset):
                self._uncommitted[known] = offset


def _targets(
    markers: Sequence[Marker], results: Sequence[dict[TopicPartition, ErrorCode]], now_ms: int
) -> Iterator[_Target]:
    for marker, outcome in zip(markers, results, strict=True):
        batch = end_txn_marker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            commit=marker.commit,
            timestamp=now_ms,
        )
        for key in marker.partitions:
            yield marker, batch, key, outcome


def _is_superseded(partition: Partition, marker: Marker) -> bool:
    """Return True if the partition knows a higher epoch of the producer and has no open transaction of it.

    The marker then has no effect, and counts as written. Kafka refuses it with INVALID_PRODUCER_EPOCH:
    1. A transaction includes the partition, but has no record there yet.
    2. Another client forges a non-transactional batch with the producer id and epoch 32,767.
    3. The coordinator ends the transaction with a lower epoch. If the partition refused the marker, the transaction
       would stay prepared permanently, and would limit the last stable offset of its other partitions.
    A deposed coordinator cannot complete a transaction by such a response: it cannot append to its log.
    """
    entry = partition.log.producers.entries.get(marker.producer_id)
    return (
        entry is not None
        and entry.epoch > marker.producer_epoch
        and entry.transaction_first_offset is None
        and entry.coordinator_epoch <= marker.coordinator_epoch
    )


def _marker_key(partition: Partition, marker: Marker) -> _MarkerKey:
    """Return the identity of a marker in one leader term: a new leader may have truncated a marker of an older term."""
    return (
        partition,
        partition.leader_epoch,
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.commit,
    )


def _is_uncommitted(key: _MarkerKey, end: int) -> bool:
    partition, leader_epoch = key[0], key[1]
    return partition.leads and partition.leader_epoch == leader_epoch and partition.log.high_watermark < end
