"""Track transactions while compaction scans a log (Kafka's `CleanedTransactionMetadata`). This module is pure.

Compaction removes the data of aborted transactions. A marker is discardable when a scan has found no data of its
transaction. The scan ends below the first unstable offset, so it finds no open transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop
from typing import TYPE_CHECKING

from odradek.protocol.batch import ControlType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from odradek.protocol.batch import BatchHeader
    from odradek.storage.segment.index import AbortedTransaction


@dataclass(slots=True)
class _Aborted:
    transaction: AbortedTransaction
    has_data: bool = False


class CleanedTransactions:
    """Transactions of one scan.

    `keep_aborted` is called with the transaction index entry of each aborted transaction of which data was found.
    """

    def __init__(
        self, aborted: Iterable[AbortedTransaction], keep_aborted: Callable[[AbortedTransaction], None] | None = None
    ) -> None:
        self.keep_aborted = keep_aborted
        self._upcoming = [(entry.first_offset, entry.last_offset, entry) for entry in aborted]
        heapify(self._upcoming)
        self._aborted: dict[int, _Aborted] = {}
        self._committed: dict[int, None] = {}

    def on_data_batch(self, batch: BatchHeader) -> bool:
        """Note a data batch. Return True if it belongs to an aborted transaction."""
        self._begin_until(batch.last_offset)
        if not batch.is_transactional:
            return False
        aborted = self._aborted.get(batch.producer_id)
        if aborted is None:
            self._committed[batch.producer_id] = None
            return False
        aborted.has_data = True
        return True

    def on_control_batch(self, batch: BatchHeader, kind: ControlType | None) -> bool:
        """Note a control batch of type `kind` (None if its record was removed). Return True if it is discardable."""
        self._begin_until(batch.last_offset)
        if kind is ControlType.ABORT:
            aborted = self._aborted.pop(batch.producer_id, None)
            if aborted is None or not aborted.has_data:
                return True
            if self.keep_aborted is not None:
                self.keep_aborted(aborted.transaction)
            return False
        if kind is ControlType.COMMIT:
            had_data = batch.producer_id in self._committed
            self._committed.pop(batch.producer_id, None)
            return not had_data
        return kind is None

    def _begin_until(self, offset: int) -> None:
        """Begin the aborted transactions whose first offset is at most `offset`."""
        while self._upcoming and self._upcoming[0][0] <= offset:
            entry = heappop(self._upcoming)[2]
            self._aborted.setdefault(entry.producer_id, _Aborted(entry))
