"""Invariants of logs: offsets, segments, indexes, producer state, leader epochs, compaction."""

from __future__ import annotations

from typing import Final

from odradek.invariants.invariant import Cost, LogInvariant

# ---- offsets of a log -----------------------------------------------------------------------------------------------

LOG_OFFSETS: Final = LogInvariant(
    "log-offsets",
    "PartitionLog",
    "Log start offset <= last stable offset <= high watermark <= log end offset.",
    "KIP-98, Kafka's UnifiedLog",
)
LOG_END_ADVANCES: Final = LogInvariant(
    "log-end-advances",
    "PartitionLog",
    "An append begins at or above the log end offset. Its last offset is not below its first offset.",
    "Kafka's UnifiedLog.append",
)
RECOVERY_POINT: Final = LogInvariant(
    "recovery-point",
    "PartitionLog",
    "Recovery point <= flushed offset <= log end offset.",
    "Kafka's LocalLog",
)
READ_RANGE: Final = LogInvariant(
    "read-range",
    "PartitionLog",
    "A read returns batches in the order of their offsets. No batch ends below the requested offset, and none begins"
    " at or above the limit.",
    "Kafka's LogSegment.read",
    Cost.EXPENSIVE,
)
FILE_WITHOUT_HOLES: Final = LogInvariant(
    "file-without-holes",
    "File",
    "A write begins at or before the end of the file. A truncation does not lengthen the file.",
    "Kafka's FileRecords",
)

# ---- segments and indexes -------------------------------------------------------------------------------------------

SEGMENT_ORDER: Final = LogInvariant(
    "segment-order",
    "Segments",
    "Base offsets of segments increase. The indexed offsets of a segment are below the base offset of the next"
    " segment.",
    "Kafka's LogSegments",
)
SEGMENT_CONTIGUOUS: Final = LogInvariant(
    "segment-contiguous",
    "PartitionLog",
    "A new segment begins at the log end offset, unless the leader's log has a gap there.",
    "Kafka's LocalLog.roll",
)
OFFSET_INDEX_ORDER: Final = LogInvariant(
    "offset-index-order",
    "OffsetIndex",
    "Relative offsets of an offset index fit 31 bits. Offsets and positions increase.",
    "Kafka's OffsetIndex.append",
)
OFFSET_INDEX_RANGE: Final = LogInvariant(
    "offset-index-range",
    "Segment",
    "Positions in an offset index are below the size of the log file.",
    "Kafka's LogSegment.truncateTo",
)
TIME_INDEX_ORDER: Final = LogInvariant(
    "time-index-order",
    "TimeIndex",
    "Relative offsets of a time index fit 31 bits. Timestamps increase, and offsets do not decrease.",
    "Kafka's TimeIndex.maybeAppend",
)
TXN_INDEX_ORDER: Final = LogInvariant(
    "txn-index-order",
    "TxnIndex",
    "Offsets of abort markers increase. A transaction begins before its marker."
    " The last stable offset of an entry is at most the offset after the marker.",
    "KIP-98, Kafka's TransactionIndex.append",
)
COMPACTION_BOUND: Final = LogInvariant(
    "compaction-bound",
    "Cleaning",
    "A compaction ends at or below the last stable offset and at or below the base offset of the active segment.",
    "Kafka's LogCleanerManager.cleanableOffsets",
)

# ---- producers ------------------------------------------------------------------------------------------------------

PRODUCER_EPOCH: Final = LogInvariant(
    "producer-epoch",
    "ProducerState",
    "An append of a leader does not decrease the epoch of a producer.",
    "KIP-98, Kafka's ProducerAppendInfo.checkProducerEpoch",
)
PRODUCER_BATCHES: Final = LogInvariant(
    "producer-batches",
    "ProducerEntry",
    "Offsets of the cached batches of a producer increase.",
    "Kafka's ProducerStateEntry.addBatch",
)
PRODUCER_SEQUENCE: Final = LogInvariant(
    "producer-sequence",
    "ProducerState",
    "The first sequence of a batch from a client follows the last sequence of the same producer and epoch.",
    "KIP-98, Kafka's ProducerAppendInfo.checkSequence",
    Cost.EXPENSIVE,
)
OPEN_TRANSACTION_ORDER: Final = LogInvariant(
    "open-transaction-order",
    "ProducerState",
    "Transactions are opened in the order of their first offsets.",
    "Kafka's ProducerStateManager.ongoingTxns",
)
COMPLETED_TRANSACTION_ORDER: Final = LogInvariant(
    "completed-transaction-order",
    "ProducerState",
    "Transactions are completed in the order of their markers. A marker has a higher offset than the first record of"
    " its transaction.",
    "Kafka's ProducerStateManager.completeTxn",
)
FIRST_UNSTABLE_OFFSET: Final = LogInvariant(
    "first-unstable-offset",
    "ProducerState",
    "The first unstable offset is not above the first offset of any open transaction."
    " Each transaction in the list of open transactions is the open transaction of its producer.",
    "KIP-98, Kafka's ProducerStateManager.firstUnstableOffset",
    Cost.EXPENSIVE,
)

# ---- leader epochs --------------------------------------------------------------------------------------------------

LEADER_EPOCH_ORDER: Final = LogInvariant(
    "leader-epoch-order",
    "LeaderEpochs",
    "Leader epochs increase, and so do their start offsets.",
    "KIP-101, Kafka's LeaderEpochFileCache",
)
