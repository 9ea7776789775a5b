"""Logs of a cluster in memory, for tests of the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.client import TopicPartition
from odradek.pipeline.audit.evidence import PartitionScan
from odradek.pipeline.audit.judge import judge
from odradek.pipeline.audit.judgment import Context, Judgment
from odradek.protocol.batch import build_batch, end_txn_marker, read_header
from odradek.protocol.codec import encode
from odradek.protocol.internal_topics import TRANSACTION_STATE
from odradek.protocol.records.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from odradek.protocol.txn_state import TxnState

if TYPE_CHECKING:
    from collections.abc import Iterable

ID = "payments-1"
PRODUCER_ID = 7
STEP_MS = 10
"""Milliseconds between two batches."""


class AuditLogs:
    """Partition 0 of `__transaction_state`, and partitions of the topic t. Each batch is later than the one before it.

    Args:
        starts: First offset of partitions of t; 0 by default.
        compacted: Partitions of t that compaction has processed.
        state_start: First offset of `__transaction_state`.
        state_compacted: True if compaction has processed `__transaction_state`.
    """

    def __init__(
        self,
        *,
        starts: dict[int, int] | None = None,
        compacted: Iterable[int] = (),
        state_start: int = 0,
        state_compacted: bool = False,
    ) -> None:
        self._starts = starts or {}
        self._compacted = set(compacted)
        self._state = PartitionScan(TRANSACTION_STATE, 0, state_start, 10**6 if state_compacted else 0)
        self._data: dict[int, PartitionScan] = {}
        self._next = {-1: state_start, **self._starts}
        self.now_ms = 1_000_000

    def state(
        self,
        state: TxnState,
        epoch: int,
        *partitions: int,
        transactional_id: str = ID,
        version: int = 2,
        timeout_ms: int = 60_000,
        producer_id: int = PRODUCER_ID,
        next_identity: tuple[int, int] = (-1, -1),
    ) -> int:
        """Append a record of a transactional id. Return its offset. `next_identity` is valid after the completion."""
        self.now_ms += STEP_MS
        value = TransactionLogValue(
            producer_id=producer_id,
            producer_epoch=epoch,
            next_producer_id=next_identity[0],
            next_producer_epoch=next_identity[1],
            transaction_timeout_ms=timeout_ms,
            transaction_status=state.value,
            transaction_partitions=[PartitionsSchema(topic="t", partition_ids=list(partitions))],
            transaction_last_update_timestamp_ms=self.now_ms,
            transaction_start_timestamp_ms=self.now_ms,
            client_transaction_version=version,
        )
        key = b"\0\0" + encode(TransactionLogKey(transactional_id=transactional_id), 0)
        offset = self._next[-1]
        batch = build_batch([(key, b"\0\1" + encode(value, 1), self.now_ms, ())], base_offset=offset)
        self._add(self._state, -1, batch)
        return offset

    def data(self, partition: int, epoch: int, *, producer_id: int = PRODUCER_ID) -> int:
        """Append a transactional batch. Return its offset."""
        self.now_ms += STEP_MS
        offset = self._next.get(partition, 0)
        record = (None, b"value", self.now_ms, ())
        batch = build_batch(
            [record], base_offset=offset, producer_id=producer_id, producer_epoch=epoch, transactional=True
        )
        self._add(self._scan(partition), partition, batch)
        return offset

    def marker(self, partition: int, epoch: int, *, commit: bool = True, producer_id: int = PRODUCER_ID) -> int:
        """Append a marker. Return its offset."""
        self.now_ms += STEP_MS
        offset = self._next.get(partition, 0)
        batch = bytearray(
            end_txn_marker(
                producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=3, commit=commit, timestamp=self.now_ms
            )
        )
        batch[:8] = offset.to_bytes(8, "big")
        self._add(self._scan(partition), partition, bytes(batch))
        return offset

    def gap(self, partition: int = -1, offsets: int = 1) -> None:
        """Skip offsets of a partition of t, or of `__transaction_state`."""
        self._next[partition] = self._next.get(partition, 0) + offsets

    def transaction(self, epoch: int, *partitions: int, commit: bool = True, version: int = 2) -> None:
        """Append a complete transaction. `epoch` is that of its data."""
        self.state(TxnState.ONGOING, epoch, *partitions, version=version)
        for partition in partitions:
            self.data(partition, epoch)
        end = epoch + 1 if version >= 2 else epoch
        self.state(TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT, end, *partitions, version=version)
        for partition in partitions:
            self.marker(partition, end, commit=commit)
        self.state(TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT, end, version=version)

    def judged(self, *, transactional_id: str = ID, judged_below: dict[int, int] | None = None) -> Judgment:
        """Judge one transactional id with all events."""
        limits = judged_below or {}
        state_log = self._state.finish()
        logs = {
            TopicPartition("t", index): scan.finish(limits.get(index)) for index, scan in sorted(self._data.items())
        }
        transitions = [each for each in self._state.transitions if each.transactional_id == transactional_id]
        events = [event for scan in self._data.values() for event in scan.events]
        context = Context(logs, {0: state_log}, state_is_whole=state_log.is_whole)
        return judge(transactional_id if transitions else "", transitions, events, context)

    def _scan(self, partition: int) -> PartitionScan:
        if partition not in self._data:
            below = 10**6 if partition in self._compacted else 0
            self._data[partition] = PartitionScan("t", partition, self._starts.get(partition, 0), below)
        return self._data[partition]

    def _add(self, scan: PartitionScan, partition: int, batch: bytes) -> None:
        header = read_header(batch)
        scan.add(header, memoryview(batch))
        self._next[partition] = header.last_offset + 1
