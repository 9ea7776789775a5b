"""Records that a consumer may read out of the batches of a Fetch response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.protocol.batch import ControlType, control_type, iter_batches, iter_records, verify_crc
from odradek.protocol.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from odradek.protocol.record import Record
    from odradek.protocol.schema import Buffer

DECOMPRESSED_BYTES_MAX: Final = 256 * 2**20
"""Maximum size of one batch after decompression, in bytes.

It bounds the memory that a hostile producer can use up in a consumer.
"""


def visible_batches(data: Buffer, aborted: Sequence[tuple[int, int]]) -> Iterator[tuple[list[Record], int]]:
    """Yield the visible records and the last offset of each batch. The list is empty for a marker or an aborted batch.

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
        records: list[Record] = []
        if header.is_control:
            for record in iter_records(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX):
                if control_type(record.key) is ControlType.ABORT:
                    aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            records = list(iter_records(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX))
        yield records, header.last_offset
