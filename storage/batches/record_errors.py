"""Which records of a batch a leader refuses (KIP-467): a batch is taken or refused whole, but its producer is told why. Pure."""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode, Refusal

SHOWN_MAX = 3
"""Records that the message of a refusal names; all of them stand in `record_errors`."""


class RecordsRefused(Refusal):
    """A batch that is refused for single records: (index in the batch, what is wrong with it) each."""

    def __init__(self, error: ErrorCode, message: str, record_errors: tuple[tuple[int, str], ...]) -> None:
        super().__init__(error, message)
        self.record_errors = record_errors


class RecordErrors:
    """Collects what is wrong while the records of one batch are looked at."""

    def __init__(self) -> None:
        self._found: list[tuple[int, str]] = []
        self._timestamps = False

    def bad_timestamp(self, index: int, message: str) -> None:
        self._timestamps = True
        self._found.append((index, message))

    def bad_record(self, index: int, message: str) -> None:
        self._found.append((index, message))

    def raise_if_any(self) -> None:
        """Raises RecordsRefused: INVALID_TIMESTAMP if any timestamp is bad (as in Kafka), else INVALID_RECORD."""
        if not self._found:
            return
        shown = "; ".join(f"record {index}: {message}" for index, message in self._found[:SHOWN_MAX])
        more = f" (and {len(self._found) - SHOWN_MAX} more)" if len(self._found) > SHOWN_MAX else ""
        error = ErrorCode.INVALID_TIMESTAMP if self._timestamps else ErrorCode.INVALID_RECORD
        raise RecordsRefused(error, f"{shown}{more}", tuple(self._found))
