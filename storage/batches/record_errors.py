"""Collect the errors of single records of a produced batch, for the response to its producer (KIP-467).

This module is pure. A leader appends a batch as a whole or refuses it as a whole. The Produce response names the
invalid records.
"""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode, Refusal

RECORDS_IN_MESSAGE_MAX = 3
"""Maximum records that the message of a refusal describes. The field `record_errors` contains all of them."""


class RecordsRefused(Refusal):
    """Refusal of a batch because of single records. `record_errors` contains (index in the batch, message) of each."""

    def __init__(self, error: ErrorCode, message: str, record_errors: tuple[tuple[int, str], ...]) -> None:
        super().__init__(error, message)
        self.record_errors = record_errors


class RecordErrors:
    """Errors of the records of one batch."""

    def __init__(self) -> None:
        self._errors: list[tuple[int, str]] = []
        self._any_timestamp_error = False

    def add_timestamp_error(self, index: int, message: str) -> None:
        self._any_timestamp_error = True
        self._errors.append((index, message))

    def add(self, index: int, message: str) -> None:
        self._errors.append((index, message))

    def raise_if_any(self) -> None:
        """Raise RecordsRefused if a record has an error: INVALID_TIMESTAMP if any timestamp has, else INVALID_RECORD.

        Kafka's `LogValidator.processRecordErrors` has the same precedence.
        """
        if not self._errors:
            return
        shown = "; ".join(f"record {index}: {message}" for index, message in self._errors[:RECORDS_IN_MESSAGE_MAX])
        hidden = len(self._errors) - RECORDS_IN_MESSAGE_MAX
        more = f" (and {hidden} more)" if hidden > 0 else ""
        error = ErrorCode.INVALID_TIMESTAMP if self._any_timestamp_error else ErrorCode.INVALID_RECORD
        raise RecordsRefused(error, f"{shown}{more}", tuple(self._errors))
