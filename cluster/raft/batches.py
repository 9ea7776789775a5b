"""Batches of the metadata log and its snapshots: data, LEADER_CHANGE, header and footer of a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.cluster.raft.messages import Entry, LeaderChange
from odradek.frozen import frozen_dataclass
from odradek.protocol import batch, codec
from odradek.protocol.batch import ControlType, control_key
from odradek.protocol.errors import Malformed
from odradek.protocol.records.leader_change_message import LeaderChangeMessage, Voter
from odradek.protocol.records.snapshot_footer_record import SnapshotFooterRecord
from odradek.protocol.records.snapshot_header_record import SnapshotHeaderRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from odradek.protocol.schema import Buffer

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum bytes of one atomic batch: Kafka's limit for the metadata log."""
CONTROL_VERSION: Final = 0


@frozen_dataclass(frozen=True, slots=True)
class LogBatch:
    """A decoded batch. `records`: (key, value) of each record; empty for a control batch.

    `size`: bytes in the log. `timestamp_ms`: the largest timestamp of its records (wall clock).
    """

    base_offset: int
    last_offset: int
    epoch: int
    records: tuple[tuple[bytes | None, bytes | None], ...]
    size: int = 0
    timestamp_ms: int = -1


def encode_records(
    records: Sequence[tuple[bytes | None, bytes | None]], *, base_offset: int, epoch: int, now_ms: int
) -> bytes:
    """Encode one atomic batch. Its timestamps are wall-clock milliseconds."""
    rows = [(key, value, now_ms, ()) for key, value in records]
    return batch.build_batch(rows, base_offset=base_offset, leader_epoch=epoch)


def encode_entry(entry: Entry, now_ms: int) -> bytes:
    """Encode an entry: its own bytes, or the LEADER_CHANGE control batch."""
    if isinstance(entry.data, LeaderChange):
        return _leader_change(entry.data, entry.base_offset, entry.epoch, now_ms)
    return entry.data


def _leader_change(change: LeaderChange, base_offset: int, epoch: int, now_ms: int) -> bytes:
    message = LeaderChangeMessage(
        version=CONTROL_VERSION,
        leader_id=change.leader_id,
        voters=[Voter(voter_id=voter) for voter in change.voters],
        granting_voters=[Voter(voter_id=voter) for voter in change.granting_voters],
    )
    value = codec.encode(message, CONTROL_VERSION)
    return _control(ControlType.LEADER_CHANGE, value, base_offset=base_offset, epoch=epoch, now_ms=now_ms)


def encode_snapshot_header(*, epoch: int, last_contained_ms: int, now_ms: int) -> bytes:
    """Encode the first batch of a snapshot. `last_contained_ms`: the timestamp of the last record that it covers."""
    value = codec.encode(SnapshotHeaderRecord(CONTROL_VERSION, last_contained_ms), CONTROL_VERSION)
    return _control(ControlType.SNAPSHOT_HEADER, value, base_offset=0, epoch=epoch, now_ms=now_ms)


def encode_snapshot_footer(*, base_offset: int, epoch: int, now_ms: int) -> bytes:
    """Encode the last batch of a snapshot. A snapshot without it is incomplete."""
    value = codec.encode(SnapshotFooterRecord(CONTROL_VERSION), CONTROL_VERSION)
    return _control(ControlType.SNAPSHOT_FOOTER, value, base_offset=base_offset, epoch=epoch, now_ms=now_ms)


def _control(kind: ControlType, value: bytes, *, base_offset: int, epoch: int, now_ms: int) -> bytes:
    rows = [(control_key(kind), value, now_ms, ())]
    return batch.build_batch(rows, base_offset=base_offset, leader_epoch=epoch, control=True)


def decode_batches(data: Buffer) -> Iterator[LogBatch]:
    """Decode all complete batches in `data`. Raise Malformed."""
    for header, view in batch.iter_batches(data):
        records: tuple[tuple[bytes | None, bytes | None], ...] = ()
        if not header.is_control:
            decoded = batch.iter_records(view, max_decompressed_bytes=BATCH_BYTES_MAX)
            records = tuple((record.key, record.value) for record in decoded)
        yield LogBatch(
            header.base_offset, header.last_offset, header.leader_epoch, records, header.size, header.max_timestamp
        )


def decode_parts(data: Buffer, records_max: int) -> Iterator[LogBatch]:
    """Like `decode_batches`, but yield a batch with more than `records_max` records as several ones.

    Their offsets follow each other. The last one has the size of the batch, and the other ones have the size 0.
    """
    for header, view in batch.iter_batches(data):
        offset, epoch, timestamp_ms = header.base_offset, header.leader_epoch, header.max_timestamp
        records: list[tuple[bytes | None, bytes | None]] = []
        decoded = () if header.is_control else batch.iter_records(view, max_decompressed_bytes=BATCH_BYTES_MAX)
        for record in decoded:
            if len(records) == records_max:
                yield LogBatch(offset, record.offset - 1, epoch, tuple(records), 0, timestamp_ms)
                offset, records = record.offset, []
            records.append((record.key, record.value))
        yield LogBatch(offset, header.last_offset, epoch, tuple(records), header.size, timestamp_ms)


def leader_change_voters(data: Buffer) -> tuple[int, ...] | None:
    """Return the voters in a LEADER_CHANGE batch, and None for any other batch. Raise Malformed."""
    for header, view in batch.iter_batches(data):
        if not header.is_control:
            return None
        for record in batch.iter_records(view, max_decompressed_bytes=BATCH_BYTES_MAX):
            if batch.control_type(record.key) is ControlType.LEADER_CHANGE and record.value is not None:
                message = codec.decode(LeaderChangeMessage, CONTROL_VERSION, record.value)
                return tuple(sorted(voter.voter_id for voter in message.voters))
    return None


def decode_entries(data: Buffer) -> Iterator[Entry]:
    """Return the batches as entries for another replica, with unchanged bytes.

    Raise Malformed, also for a wrong checksum.
    """
    for header, view in batch.iter_batches(data):
        if not batch.verify_crc(view, 0, header):
            raise Malformed(f"the checksum of the batch at offset {header.base_offset} does not match")
        yield Entry(header.base_offset, header.last_offset, header.leader_epoch, bytes(view))
