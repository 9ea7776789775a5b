"""Prepare appends: assign offsets, check the producers, plan the changes of the producer state. Write nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from odradek.protocol.batch import NO_TIMESTAMP
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.producers.entry import Origin
from odradek.storage.producers.state import AppendPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.client_shares import Client
    from odradek.protocol.batch import BatchHeader
    from odradek.protocol.schema import Buffer
    from odradek.storage.batches.validation import CheckedBatch
    from odradek.storage.config import LogConfig
    from odradek.storage.log.empty_markers import EmptyMarkers
    from odradek.storage.producers.entry import EndMarker
    from odradek.storage.producers.state import ProducerState


class AppendInfo(NamedTuple):
    """Result of an append. If `duplicate`, nothing was written: the offsets are those of the earlier, equal batch."""

    first_offset: int
    last_offset: int
    log_append_time: int  # ms; NO_TIMESTAMP if message.timestamp.type is CreateTime
    log_start_offset: int
    duplicate: bool = False


class PreparedAppend(NamedTuple):
    """Batches of one append with their offsets, ready to be written."""

    headers: list[BatchHeader]
    buffers: list[Buffer]
    """Bytes of the batches."""
    plan: AppendPlan | None
    """Changes of the producer state; None if no batch has a producer id."""
    first_offset: int
    last_offset: int
    size: int
    """Bytes of all batches."""
    newest_timestamp: int
    """Largest timestamp of the batches, in ms."""
    gap: bool = False
    """True if offsets are missing before or between the batches."""


def prepare_leader_append(
    batches: Sequence[CheckedBatch],
    producers: ProducerState,
    config: LogConfig,
    *,
    log_end_offset: int,
    leader_epoch: int,
    origin: Origin,
    monotonic_ms: int,
    guard: int,
    transaction_version: int,
    client: Client | None,
) -> PreparedAppend:
    """Assign offsets from `log_end_offset` on, and plan the changes of the producer state.

    Raises:
        Refusal: RECORD_LIST_TOO_LARGE, or an error of `ProducerState.plan`.
    """
    plan: AppendPlan | None = None
    headers: list[BatchHeader] = []
    buffers: list[Buffer] = []
    offset = log_end_offset
    size, newest = 0, NO_TIMESTAMP
    for batch in batches:
        header = batch.header
        batch.set_offset(offset, leader_epoch)
        headers.append(header)
        buffers += (batch.header_bytes, batch.records)
        if header.has_producer:
            plan = plan or AppendPlan(origin, monotonic_ms, client)
            producers.plan(
                plan,
                header,
                offset,
                marker=batch.marker,
                guard=guard,
                transaction_version=transaction_version,
                verification_enabled=config.verification_enabled,
            )
        size += header.size
        newest = max(newest, header.max_timestamp)
        offset = header.last_offset + 1
    if size > config.segment_bytes:
        message = f"{size} bytes do not fit a segment of {config.segment_bytes} bytes"
        raise Refusal(ErrorCode.RECORD_LIST_TOO_LARGE, message)
    return PreparedAppend(headers, buffers, plan, log_end_offset, offset - 1, size, newest)


def prepare_follower_append(
    records: Buffer,
    batches: Sequence[tuple[BatchHeader, EndMarker | None]],
    producers: ProducerState,
    *,
    monotonic_ms: int,
    empty_markers: EmptyMarkers,
    log_start_offset: int,
    first_unstable_offset: int | None,
    log_end_offset: int,
) -> PreparedAppend:
    """Check the offsets of batches fetched from the leader, and plan the changes of the producer state.

    `batches` is not empty.

    Raises:
        Refusal: CORRUPT_MESSAGE, or OFFSET_OUT_OF_RANGE for batches below the log end.
        TransactionCompactedAway: An empty marker ends a transaction that has data in this log.
    """
    plan: AppendPlan | None = None
    first_offset = end = batches[0][0].base_offset
    if first_offset < log_end_offset:
        message = f"the fetched batch at offset {first_offset} is below the log end offset {log_end_offset}"
        raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, message)
    size, newest, gap = 0, NO_TIMESTAMP, first_offset != log_end_offset
    for header, marker in batches:
        if header.base_offset != end:
            if header.base_offset < end:
                message = f"the fetched batch at offset {header.base_offset} follows offset {end - 1}"
                raise Refusal(ErrorCode.CORRUPT_MESSAGE, message)
            gap = True
        if header.has_producer:
            plan = plan or AppendPlan(Origin.REPLICATION, monotonic_ms)
            if header.is_control and header.record_count == 0:
                update = plan.updates.get(header.producer_id)
                entry = producers.entries.get(header.producer_id) if update is None else update.entry
                opened = None if entry is None else entry.transaction_first_offset
                if opened is not None and log_start_offset <= opened < log_end_offset:
                    empty_markers.check(header, opened, first_unstable_offset)
            producers.plan(plan, header, header.base_offset, marker=marker)
        end = header.last_offset + 1
        size += header.size
        newest = max(newest, header.max_timestamp)
    headers = [header for header, _ in batches]
    return PreparedAppend(headers, [memoryview(records)[:size]], plan, first_offset, end - 1, size, newest, gap)
