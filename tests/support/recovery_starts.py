"""Logs that are long enough for a recovery start, and what recovery derives from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.storage.config import LogConfig
from odradek.storage.log.flushing import RECOVERY_START_BYTES_MIN
from tests.support.logs import NOW_MS, append, headers, marker, produced

if TYPE_CHECKING:
    from odradek.storage.log.log import PartitionLog

CONFIG = LogConfig(index_interval_bytes=100)
BIG = RECOVERY_START_BYTES_MIN // 4


def fill(log: PartitionLog, round_number: int, size: int = BIG) -> None:
    """Append idempotent batches, a committed, an aborted and an open transaction, of RECOVERY_START_BYTES_MIN or more.

    The batches of a round have older timestamps than those of the round before.
    """
    first, timestamp = 5 * round_number, NOW_MS - 10_000 * round_number
    for sequence in range(first, first + 5):
        append(log, produced(7, sequence, size=size, timestamp=timestamp), leader_epoch=round_number)
    for producer_id, commit in ((8, True), (9, False)):
        append(log, produced(producer_id, round_number, transactional=True), leader_epoch=round_number)
        append(log, marker(producer_id, commit=commit), leader_epoch=round_number)
    append(log, produced(10 + round_number, 0, transactional=True), leader_epoch=round_number)


def state(log: PartitionLog) -> dict[str, Any]:
    """Return all that recovery derives."""
    segments: list[tuple[Any, ...]] = []
    for segment in log.segments:
        if segment.offset_index is None or segment.time_index is None:
            segments.append((segment.base_offset, segment.txn_index.encode()))  # not loaded: it was not recovered
            continue
        segments.append(
            (
                segment.base_offset,
                segment.offset_index.entries(),
                segment.time_index.entries(),
                segment.txn_index.encode(),
                segment.largest_timestamp,
                segment.offset_of_max_timestamp,
                segment.first_batch_timestamp,
                segment.bytes_since_index_entry,
            )
        )
    return {
        "segments": segments,
        "end": log.log_end_offset,
        "stable": log.last_stable_offset,
        "epochs": log.epochs.entries(),
        "producers": {
            entry.producer_id: (
                entry.epoch,
                entry.last_sequence,
                entry.last_data_offset,
                entry.transaction_first_offset,
            )
            for entry in log.producers.entries.values()
        },
    }


def without_entries_of_rolls(found: dict[str, Any], whole: dict[str, Any], log: PartitionLog) -> dict[str, Any]:
    """Return `found`, the state of `log`, without time index entries that only a roll can have written.

    A roll, and a clean shutdown, end the time index with the largest timestamp so far. If a power failure makes the
    segment active again, that entry stays below the recovery start, and a recovery of the whole segment has no such
    entry. Assert that the log has at most one in a segment, and that it is true.
    """
    segments = []
    for of_found, of_whole in zip(found["segments"], whole["segments"], strict=True):
        additional = [] if len(of_found) == 2 else [entry for entry in of_found[2] if entry not in of_whole[2]]
        if not additional:
            segments.append(of_found)
            continue
        [(timestamp, offset)] = additional
        before = [
            header for header in headers(log) if of_found[0] <= header.base_offset and header.last_offset <= offset
        ]
        assert before[-1].last_offset == offset
        assert max(header.max_timestamp for header in before) == before[-1].max_timestamp == timestamp
        entries = [entry for entry in of_found[2] if entry not in additional]
        segments.append((*of_found[:2], entries, *of_found[3:]))
    return found | {"segments": segments}


def checkpointed(log: PartitionLog) -> dict[str, int | None]:
    """Return the options with which the log is opened after its checkpoints were written now."""
    return {
        "recovery_point": log.recovery_point,
        "recovery_start": log.recovery_start,
        "high_watermark": log.high_watermark,
    }
