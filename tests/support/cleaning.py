"""Compaction of a whole log in one call, and reads of its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.protocol.batch import ControlType, Record, control_type, iter_batches, iter_records
from odradek.storage.compaction.cleaner import CleanerLimits, Cleaning, CleaningResult, cleanable
from odradek.storage.log.reads import ColdRead
from tests.support.logs import NOW_MS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.storage.log.log import PartitionLog

LIMITS = CleanerLimits(dedupe_buffer_size=1 << 20, load_factor=0.9, io_buffer_size=1 << 17)


async def no_pause(moved_bytes: int) -> None:
    """Return immediately."""


async def clean(
    log: PartitionLog,
    *,
    now_ms: int = NOW_MS,
    limits: CleanerLimits = LIMITS,
    pace: Callable[[int], Awaitable[None]] = no_pause,
) -> CleaningResult:
    """Clean what can be cleaned, however little it is."""
    await log.flush()
    return await Cleaning(log, cleanable(log, now_ms), limits, pace, expiry_ms=now_ms, wall_ms=now_ms).run()


def fetched(log: PartitionLog, offset: int | None = None, *, committed: bool, max_bytes: int = 1 << 20) -> list[Record]:
    """The records that a consumer gets from `offset` on, reading to the end."""
    at = log.log_start_offset if offset is None else offset
    limit = log.last_stable_offset if committed else log.high_watermark
    found: list[Record] = []
    while at < limit:
        result = log.read(at, max_bytes=max_bytes, limit=limit)
        assert not isinstance(result, ColdRead)
        aborted = sorted(log.aborted_transactions(at, result), key=lambda pair: pair[1]) if committed else []
        before = at
        dead: dict[int, None] = {}
        for header, batch in iter_batches(result.records):
            while aborted and aborted[0][1] <= header.last_offset:
                dead[aborted.pop(0)[0]] = None
            records = list(iter_records(batch, max_decompressed_bytes=1 << 24))
            if header.is_control:
                if records and control_type(records[0].key) is ControlType.ABORT:
                    dead.pop(header.producer_id, None)
            elif not (header.is_transactional and header.producer_id in dead):
                found += [record for record in records if record.offset >= at]
            at = header.last_offset + 1
        if at == before:
            break
    return found


def latest(records: list[Record]) -> dict[bytes | None, Any]:
    """The last value of each key; keys that were deleted are left out."""
    values = {record.key: record.value for record in records}
    return {key: value for key, value in values.items() if value is not None}
