"""Check markers without a record, which compaction leaves, against the open transactions of a follower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from odradek.protocol.batch import BatchHeader
    from odradek.storage.log.truncation import Truncation


class TransactionCompactedAway(Refusal):
    """The leader has compacted away a transaction that is open on this follower.

    The follower must truncate its log to `offset` and fetch again.
    """

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.offset = offset


class EmptyMarkers:
    """Refuse an empty marker that ends a transaction with data in this log.

    Compaction removes the record of a marker after it has removed all data of the transaction. A follower that was
    offline for longer than delete.retention.ms may still have the data. An empty marker does not say whether the
    transaction was committed, so the data may be that of an aborted transaction.

    The follower is not in the ISR: it lacks records that were below the high watermark when the leader compacted. So it
    may truncate below its own high watermark. It removes all unstable records.

    Kafka ignores such a batch, and counts the data as part of the producer's next transaction.
    """

    def __init__(self, truncation: Truncation) -> None:
        self._truncation = truncation
        self._requested: tuple[int, int] | None = None
        """Offset of the marker for which a truncation was requested last, and the number of that truncation."""

    def check(self, marker: BatchHeader, opened: int, first_unstable: int | None) -> None:
        """Request a truncation for an empty marker that ends a transaction with data from `opened` on.

        `first_unstable` is the first unstable offset of the log.

        Raises:
            TransactionCompactedAway: The log was not truncated for this marker yet. If it was, and the leader has sent
                the data again, another truncation would not help.
        """
        truncations = self._truncation.count
        if self._requested != (marker.base_offset, truncations):
            self._requested = marker.base_offset, truncations + 1
            message = f"the leader has compacted away the transaction of producer {marker.producer_id} from {opened} on"
            raise TransactionCompactedAway(opened if first_unstable is None else min(first_unstable, opened), message)
