"""Records that a consumer may read out of the batches of a Fetch response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.protocol.batch import ControlType, control_type, iter_batches, iter_records, verify_crc
from odradek.protocol.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from odradek.protocol.batch import BatchHeader
    from odradek.protocol.record import Record
    from odradek.protocol.schema import Buffer

DECOMPRESSED_BYTES_MAX: Final = 256 * 2**20
"""Maximum size of one batch after decompression, in bytes.

It bounds the memory that a hostile producer can use up in a consumer.
"""


def checked_batches(
    data: Buffer, aborted: Sequence[tuple[int, int]] = ()
) -> Iterator[tuple[BatchHeader, memoryview, bool]]:
    """Yield header and bytes of each batch, and whether its records belong to an aborted transaction.

    `aborted` has the first offset and the producer id of each aborted transaction, as a Fetch response lists them for
    read_committed. It is empty for read_uncommitted. Raise Malformed if a batch is damaged.
    """
    pending = sorted(aborted, reverse=True)
    aborting: set[int] = set()
    for header, batch in iter_batches(data):
        if not verify_crc(batch, 0, header):
            raise Malformed(f"batch at offset {header.base_offset}: the checksum does not match")
        while pending and pending[-1][0] <= header.last_offset:
            aborting.add(pending.pop()[1])
        if header.is_control:
            for record in iter_records(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX):
                if control_type(record.key) is ControlType.ABORT:
                    aborting.discard(header.producer_id)
        is_aborted = header.is_transactional and not header.is_control and header.producer_id in aborting
        yield header, batch, is_aborted


def visible_batches(data: Buffer, aborted: Sequence[tuple[int, int]]) -> Iterator[tuple[list[Record], int]]:
    """Yield the visible records and the last offset of each batch. The list is empty for a marker or an aborted batch.

    See `checked_batches` for `aborted` and the exception.
    """
    for header, batch, is_aborted in checked_batches(data, aborted):
        hidden = is_aborted or header.is_control
        records = [] if hidden else list(iter_records(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX))
        yield records, header.last_offset
