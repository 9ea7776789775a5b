"""Records of TLS, before they are decrypted (RFC 8446, section 5.1)."""

from typing import Final

DATA_BYTES_MAX: Final = 16_384
"""Maximum bytes of data in one record."""
HEADER_BYTES: Final = 5
_EXPANSION_BYTES_MAX: Final = 2_048
"""Maximum bytes by which encryption makes a record longer (RFC 5246, section 6.2.3)."""
_LENGTH_START: Final = 3
WITHOUT_DATA_MAX: Final = 64
"""Maximum records without data of one connection, beyond one per DATA_RECORDS_PER_OTHER records with data.

A client can send any number of key updates. Each one takes about 20 us of the event loop and a response. The library
processes all that have arrived in one step. Key updates are needed after some millions of records.
"""
DATA_RECORDS_PER_OTHER: Final = 64


class Records:
    """The received bytes of one connection, split into records, and a count of records without data."""

    __slots__ = ("_bytes", "_credit", "_start")

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._start = 0
        self._credit = WITHOUT_DATA_MAX * DATA_RECORDS_PER_OTHER

    def add(self, received: bytes | memoryview) -> None:
        """Accept bytes that follow the former ones."""
        del self._bytes[: self._start]
        self._start = 0
        self._bytes += received

    def next(self) -> bytes | None:
        """Return the next complete record. Return None if more bytes are needed.

        A record that is too long is returned as far as it has arrived, so that the TLS library refuses it.
        """
        start, held = self._start, self._bytes
        if len(held) - start < HEADER_BYTES:
            return None
        end = start + HEADER_BYTES + int.from_bytes(held[start + _LENGTH_START : start + HEADER_BYTES])
        if end > len(held) and end - start <= HEADER_BYTES + DATA_BYTES_MAX + _EXPANSION_BYTES_MAX:
            return None
        record = bytes(memoryview(held)[start:end])
        self._start = start + len(record)
        if self._start == len(held):
            self._bytes = bytearray()
            self._start = 0
        return record

    def count(self, *, has_data: bool) -> None:
        """Count a record. Raise ConnectionError if too many had no data."""
        if not has_data:
            self._credit -= DATA_RECORDS_PER_OTHER
            if self._credit < 0:
                raise ConnectionError("too many TLS records without data, such as key updates")
        elif self._credit < WITHOUT_DATA_MAX * DATA_RECORDS_PER_OTHER:
            self._credit += 1
