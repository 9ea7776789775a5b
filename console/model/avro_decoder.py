"""Decoder of Avro's primitive types with a maximum number of values."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG_BYTES_MAX: Final = 10
"""Maximum bytes of an int or long."""
FLOAT: Final = Struct("<f")
DOUBLE: Final = Struct("<d")


class AvroUndecodable(Exception):
    """A value could not be decoded. The message has the reason."""


class AvroDecoder:
    """Decoder of one value, with the methods that fastavro's reader calls.

    It counts all values, also those without bytes: a few bytes can announce any number of items of type null.

    Args:
        content: The encoded value.
        values_max: Maximum number of values, sizes and items.
    """

    def __init__(self, content: bytes, values_max: int) -> None:
        self._content = content
        self._position = 0
        self._values_max = self._values_left = values_max
        self._items = 0

    def _count(self) -> None:
        self._values_left -= 1
        if self._values_left < 0:
            raise AvroUndecodable(f"more than {self._values_max} values")

    def read_fixed(self, size: int) -> bytes:
        """Read a number of bytes. Raise EOFError if the content ends before."""
        self._count()
        end = self._position + size
        if not self._position <= end <= len(self._content):
            raise EOFError
        found = self._content[self._position : end]
        self._position = end
        return found

    def read_null(self) -> None:
        """Read a value without bytes."""
        self._count()

    def read_boolean(self) -> bool:
        """Read a boolean. Each byte but 0 is true."""
        return self.read_fixed(1) != b"\0"

    def read_float(self) -> float:
        """Read four bytes."""
        return float(FLOAT.unpack(self.read_fixed(FLOAT.size))[0])

    def read_double(self) -> float:
        """Read eight bytes."""
        return float(DOUBLE.unpack(self.read_fixed(DOUBLE.size))[0])

    def read_long(self) -> int:
        """Read an int or long, or a size. Raise ValueError if it has more than 64 bits."""
        self._count()
        number = 0
        for at, byte in enumerate(self._content[self._position : self._position + LONG_BYTES_MAX]):
            number |= (byte & 0x7F) << 7 * at
            if byte < 0x80:
                self._position += at + 1
                return (number >> 1) ^ -(number & 1)
        if len(self._content) < self._position + LONG_BYTES_MAX:
            raise EOFError
        raise ValueError("a long has more than 64 bits")

    read_int = read_long

    def read_index(self) -> int:
        """Read the index of a branch or symbol. Raise ValueError if it is negative."""
        index = self.read_long()
        if index < 0:
            raise ValueError("an index is negative")
        return index

    read_enum = read_index

    def read_bytes(self) -> bytes:
        """Read bytes behind their number."""
        return self.read_fixed(self.read_long())

    def read_utf8(self, handle_unicode_errors: str = "strict") -> str:
        """Read text behind the number of its bytes."""
        return self.read_bytes().decode(errors=handle_unicode_errors)

    def read_array_start(self) -> None:
        """Read the number of items of the first block of an array or map."""
        self._items = self.read_long()

    read_map_start = read_array_start

    def iter_array(self) -> Iterator[None]:
        """Yield for each item of the blocks of an array or map. A negative number of items has a size behind it."""
        while self._items:
            if self._items < 0:
                self.read_long()
            for _ in range(abs(self._items)):
                self._count()
                yield
            self._items = self.read_long()

    iter_map = iter_array

    def read_array_end(self) -> None:
        """Leave an array or map."""

    read_map_end = read_array_end
