"""Check markers whose record compaction has removed against the open transactions of a follower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from odradek.protocol.batch import BatchHeader


class TransactionCompactedAway(Refusal):
    """The leader has compacted away a transaction that is open here. The log must be truncated to `offset` and fetched again."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.offset = offset


class EmptyMarkers:
    """Refuse an empty marker that ends a transaction with data in this log.

    Compaction removes the record of a marker after it has removed all data of the transaction. The data is still here only if this
    replica was away for longer than delete.retention.ms. Whether the transaction was committed is not known any more, so its data
    may be that of an aborted one. The replica is not in the ISR: it lacks records that were below the high watermark when the
    leader compacted. So it may truncate below its own high watermark, and removes all unstable records in one step. Kafka ignores
    such a batch, and takes the data as part of the producer's next transaction.
    """

    def __init__(self) -> None:
        self._requested: tuple[int, int] | None = None
        """The offset of the marker that a truncation was requested for last, and the number of that truncation."""

    def check(self, marker: BatchHeader, opened: int, first_unstable: int | None, truncations: int) -> None:
        """Request a truncation for an empty marker that ends a transaction with data from `opened` on.

        `first_unstable` is the first unstable offset of the log, `truncations` the number of its truncations so far.

        Raises:
            TransactionCompactedAway: Not if the log was truncated for this marker and the leader has sent the data again: another
                truncation would not help.
        """
        if self._requested != (marker.base_offset, truncations):
            self._requested = marker.base_offset, truncations + 1
            message = f"the leader has no records left of producer {marker.producer_id} from offset {opened} on"
            raise TransactionCompactedAway(opened if first_unstable is None else min(first_unstable, opened), message)
