"""Batches of the replicated log: data batches of records, and the control batch that opens an epoch. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cluster.raft.messages import Entry, LeaderChange
from protocol import batch, codec
from protocol.errors import Malformed
from protocol.records.leader_change_message import LeaderChangeMessage, Voter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from protocol.schema import Buffer

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""One atomic batch; Kafka's bound for the metadata log."""
LEADER_CHANGE_TYPE: Final = 2
LEADER_CHANGE_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A decoded batch. `records`: (key, value) each; empty for control batches, which hold nothing for state machines."""

    base_offset: int
    last_offset: int
    epoch: int
    records: tuple[tuple[bytes | None, bytes | None], ...]


def encode_records(
    records: Sequence[tuple[bytes | None, bytes | None]], *, base_offset: int, epoch: int, now_ms: int
) -> bytes:
    """One atomic batch, timestamps in wall-clock milliseconds."""
    rows = [(key, value, now_ms, ()) for key, value in records]
    return batch.build_batch(rows, base_offset=base_offset, leader_epoch=epoch)


def encode_entry(entry: Entry, now_ms: int) -> bytes:
    """The bytes of an entry: its own, or the LEADER_CHANGE control batch."""
    if isinstance(entry.data, LeaderChange):
        return _leader_change(entry.data, entry.base_offset, entry.epoch, now_ms)
    return entry.data


def _leader_change(change: LeaderChange, base_offset: int, epoch: int, now_ms: int) -> bytes:
    message = LeaderChangeMessage(
        version=LEADER_CHANGE_VERSION,
        leader_id=change.leader_id,
        voters=[Voter(voter_id=voter) for voter in change.voters],
        granting_voters=[Voter(voter_id=voter) for voter in change.granting_voters],
    )
    key = b"\x00\x00" + LEADER_CHANGE_TYPE.to_bytes(2, "big")
    value = codec.encode(message, LEADER_CHANGE_VERSION)
    return batch.build_batch([(key, value, now_ms, ())], base_offset=base_offset, leader_epoch=epoch, control=True)


def decode_batches(data: Buffer) -> Iterator[LogBatch]:
    """Every whole batch in `data`. Raises Malformed."""
    for header, view in batch.iter_batches(data):
        records: tuple[tuple[bytes | None, bytes | None], ...] = ()
        if not header.is_control:
            decoded = batch.iter_records(view, max_decompressed_bytes=BATCH_BYTES_MAX)
            records = tuple((record.key, record.value) for record in decoded)
        yield LogBatch(header.base_offset, header.last_offset, header.leader_epoch, records)


def decode_entries(data: Buffer) -> Iterator[Entry]:
    """The same batches as entries for another replica, bytes untouched. Raises Malformed, also for a bad checksum."""
    for header, view in batch.iter_batches(data):
        if not batch.verify_crc(view, 0, header):
            raise Malformed(f"the checksum of the batch at offset {header.base_offset} does not match")
        yield Entry(header.base_offset, header.last_offset, header.leader_epoch, bytes(view))
