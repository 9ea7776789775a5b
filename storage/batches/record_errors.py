"""Collect the errors of single records of a produced batch, for the response to its producer (KIP-467).

This module is pure. A leader appends a batch as a whole or refuses it as a whole. The Produce response names the
invalid records.
"""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode, Refusal

RECORDS_IN_MESSAGE_MAX = 3
"""Maximum records that the message of a refusal describes. The field `record_errors` contains all of them."""
RECORD_ERRORS_MAX = 1_000
"""Maximum errors of records per batch and per Produce response. The check of a batch stops there.

1,000 errors need about 80 KiB in the response. Apache Kafka has no limit: it lists each invalid record of a batch.
"""


class RecordsRefused(Refusal):
    """Refusal of a batch because of single records. `record_errors` contains (index in the batch, message) of each."""

    def __init__(self, error: ErrorCode, message: str, record_errors: tuple[tuple[int, str], ...]) -> None:
        super().__init__(error, message)
        self.record_errors = record_errors


class RecordErrors:
    """Errors of the records of one batch."""

    def __init__(self) -> None:
        self._errors: list[tuple[int, str]] = []
        self.full = False
        """True if no more errors are collected."""
        self._any_timestamp_error = False

    def add_timestamp_error(self, index: int, message: str) -> None:
        self._any_timestamp_error = True
        self.add(index, message)

    def add(self, index: int, message: str) -> None:
        if len(self._errors) < RECORD_ERRORS_MAX:
            self._errors.append((index, message))
        self.full = len(self._errors) == RECORD_ERRORS_MAX

    def raise_if_any(self) -> None:
        """Raise RecordsRefused if a record has an error: INVALID_TIMESTAMP if any timestamp has, else INVALID_RECORD.

        Kafka's `LogValidator.processRecordErrors` has the same precedence.
        """
        if not self._errors:
            return
        shown = "; ".join(f"record {index}: {message}" for index, message in self._errors[:RECORDS_IN_MESSAGE_MAX])
        hidden = len(self._errors) - RECORDS_IN_MESSAGE_MAX
        more = f" (and {hidden} more)" if hidden > 0 else ""
        if self.full:
            more = f" (and {hidden} more; the check stopped there)"
        error = ErrorCode.INVALID_TIMESTAMP if self._any_timestamp_error else ErrorCode.INVALID_RECORD
        raise RecordsRefused(error, f"{shown}{more}", tuple(self._errors))
