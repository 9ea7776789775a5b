"""A record of a partition with the state of its transaction."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.protocol.batch import BatchHeader, ControlType

HEADERS_MAX: Final = 200
"""Maximum headers of a record that a page shows."""
HEADERS_DECODED_MAX: Final = HEADERS_MAX + 1
"""Maximum headers of a record that are decoded. A batch of 500 bytes can expand to millions of empty headers."""
OBJECT_BYTES: Final = 250
"""Bytes of the objects of a record or of a header, besides their content."""


class TransactionState(Enum):
    """State of a record's transaction."""

    NONE = "none"
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record or marker of a partition, or a batch that could not be decoded.

    Attributes:
        partition: Index of the partition.
        offset: Offset of the record. Of a batch that could not be decoded: its last one.
        timestamp_ms: Time in ms since 1970.
        append_time: The time is that of the append, not that of the producer.
        key: Key, or None.
        value: Value, or None for a tombstone.
        headers: Names and values of the first HEADERS_DECODED_MAX headers, in order.
        state: State of the transaction.
        control: Type of the marker or other control record. None: a record of a producer.
        batch: Header of its batch.
        problem: The reason why the batch could not be decoded. Empty for a record.
    """

    partition: int
    offset: int
    timestamp_ms: int
    append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    state: TransactionState
    control: ControlType | None
    batch: BatchHeader
    problem: str = ""

    @property
    def size(self) -> int:
        """Return the bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")

    @property
    def content_size(self) -> int:
        """Return the bytes of key, value and decoded headers."""
        return self.size + sum(len(name) + len(value or b"") for name, value in self.headers)

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of memory that the record takes, approximately."""
        return OBJECT_BYTES * (1 + len(self.headers)) + self.content_size

    @property
    def sequence(self) -> int | None:
        """Return the sequence number of the record, or None if its producer is not idempotent."""
        if self.control is not None or self.batch.base_sequence < 0:
            return None
        return (self.batch.base_sequence + self.offset - self.batch.base_offset) % 2**31
