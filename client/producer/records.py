"""Records to be written, and the batches in which they are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BATCH_RECORDS_MAX: Final = 1_000
"""Maximum records of one batch."""
BATCH_BYTES_MAX: Final = 512 * 1024
"""Maximum size of the keys, values and headers of a batch with several records, in bytes.

The default limit of a broker (message.max.bytes) is 1 MiB, which a record of that size reaches alone.
"""


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record to be written.

    Without a `partition`, the key determines it as in Kafka's producers, and records without a key go to the partitions
    in turn. `timestamp_ms` is in milliseconds since 1970; None stands for the time of sending.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def batches_of(records: Iterable[ProducerRecord]) -> Iterator[list[ProducerRecord]]:
    """Divide records into lists of at most BATCH_RECORDS_MAX records and BATCH_BYTES_MAX bytes.

    A larger record is alone in its list.
    """
    batch: list[ProducerRecord] = []
    size = 0
    for record in records:
        headers = sum(len(name) + len(value or b"") for name, value in record.headers)
        added = len(record.key or b"") + len(record.value or b"") + headers
        if batch and size + added > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += added
        if len(batch) >= BATCH_RECORDS_MAX or size >= BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
