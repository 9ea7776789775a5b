"""What the cleaner has to know of transactions while it walks over a log (kafka-facts 6.10). Pure.

Data of aborted transactions goes; a marker stays until a whole walk has met no data of its transaction. Nothing here ever
meets a transaction that is open: the walk ends below the first unstable offset.
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
    """One walk. `keep_aborted` takes the index entry of an aborted transaction of which there was still data."""

    def __init__(
        self, aborted: Iterable[AbortedTransaction], keep_aborted: Callable[[AbortedTransaction], None] | None = None
    ) -> None:
        self.keep_aborted = keep_aborted
        self._to_come = [(entry.first_offset, entry.last_offset, entry) for entry in aborted]
        heapify(self._to_come)
        self._aborted: dict[int, _Aborted] = {}
        self._committed: dict[int, None] = {}

    def data(self, batch: BatchHeader) -> bool:
        """A batch of records; whether it was aborted."""
        self._begin(batch.last_offset)
        if not batch.is_transactional:
            return False
        aborted = self._aborted.get(batch.producer_id)
        if aborted is None:
            self._committed[batch.producer_id] = None
            return False
        aborted.has_data = True
        return True

    def control(self, batch: BatchHeader, kind: ControlType | None) -> bool:
        """A control batch, None: whose record is gone already; whether it is of no use any more."""
        self._begin(batch.last_offset)
        if kind is ControlType.ABORT:
            aborted = self._aborted.pop(batch.producer_id, None)
            if aborted is None or not aborted.has_data:
                return True
            if self.keep_aborted is not None:
                self.keep_aborted(aborted.transaction)
            return False
        if kind is ControlType.COMMIT:
            met = batch.producer_id in self._committed
            self._committed.pop(batch.producer_id, None)
            return not met
        return kind is None

    def _begin(self, offset: int) -> None:
        """Transactions that have begun up to `offset`."""
        while self._to_come and self._to_come[0][0] <= offset:
            entry = heappop(self._to_come)[2]
            self._aborted.setdefault(entry.producer_id, _Aborted(entry))
