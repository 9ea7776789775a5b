"""Violations planted into copied segment files. Each function changes one file, and returns what an audit must name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from odradek.pipeline.audit.judgment import Kind
from odradek.protocol.batch import BatchHeader, build_batch, end_txn_marker, iter_batches, plain_end_txn_marker

if TYPE_CHECKING:
    from pathlib import Path


class Planted(NamedTuple):
    """Values that an audit must name. `offset` is -1 if it is that of the data before a missing marker."""

    kind: Kind
    producer_id: int
    producer_epoch: int
    topic_partition: str
    offset: int


class Marker(NamedTuple):
    """A marker in a segment file."""

    header: BatchHeader
    data: bytes
    commit: bool


def segment(partition: Path) -> Path:
    """Return the only segment of a partition directory."""
    [path] = partition.glob("*.log")
    return path


def batches(partition: Path) -> list[tuple[BatchHeader, bytes]]:
    return [(header, bytes(batch)) for header, batch in iter_batches(segment(partition).read_bytes())]


def markers(partition: Path) -> list[Marker]:
    """Return the markers of a partition, in order."""
    found = []
    for header, batch in batches(partition):
        decoded = plain_end_txn_marker(batch, header)
        if decoded is not None:
            found.append(Marker(header, batch, decoded[0]))
    return found


def remove_marker(partition: Path, marker: Marker) -> Planted:
    """Write the segment again without the batch of a marker."""
    kept = [batch for _, batch in batches(partition) if batch != marker.data]
    segment(partition).write_bytes(b"".join(kept))
    header = marker.header
    return Planted(Kind.MISSING_MARKER, header.producer_id, header.producer_epoch, partition.name, -1)


def replace_marker(partition: Path, marker: Marker, *, epoch: int) -> Planted:
    """Overwrite a marker with one that has another epoch, and the right checksum."""
    header = marker.header
    new = _at(
        header.base_offset,
        end_txn_marker(
            producer_id=header.producer_id,
            producer_epoch=epoch,
            coordinator_epoch=0,
            commit=marker.commit,
            timestamp=header.base_timestamp,
        ),
        header.leader_epoch,
    )
    content = segment(partition).read_bytes()
    assert content.count(marker.data) == 1
    segment(partition).write_bytes(content.replace(marker.data, new))
    return Planted(Kind.WRONG_EPOCH, header.producer_id, epoch, partition.name, header.base_offset)


def forge_marker(partition: Path, producer_id: int, epoch: int) -> Planted:
    """Append a COMMIT marker that no coordinator has decided."""
    marker = end_txn_marker(
        producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0, commit=True, timestamp=_last_ms(partition)
    )
    return Planted(Kind.NO_DECISION, producer_id, epoch, partition.name, _append(partition, marker))


def write_late(partition: Path, producer_id: int, epoch: int) -> Planted:
    """Append data of a producer whose transaction has ended."""
    data = build_batch(
        [(b"late", b"late", _last_ms(partition), ())], producer_id=producer_id, producer_epoch=epoch, transactional=True
    )
    return Planted(Kind.LATE_DATA, producer_id, epoch, partition.name, _append(partition, data))


def _append(partition: Path, batch: bytes) -> int:
    last, _ = batches(partition)[-1]
    offset = last.last_offset + 1
    with segment(partition).open("ab") as file:
        file.write(_at(offset, batch, last.leader_epoch))
    return offset


def _last_ms(partition: Path) -> int:
    return batches(partition)[-1][0].max_timestamp


def _at(offset: int, batch: bytes, leader_epoch: int) -> bytes:
    """Return a batch with another base offset and leader epoch. Its checksum does not cover them."""
    return offset.to_bytes(8, "big") + batch[8:12] + leader_epoch.to_bytes(4, "big") + batch[16:]
