"""Reader of the fields of record keys and values: big-endian numbers, and strings and arrays in Kafka's two encodings.

Part of the checkers, without code of the broker.
"""

import struct


class Fields:
    """Cursor over the fields of `data`, from the first field on."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def number(self, layout: str) -> int:
        """Read one number, in the notation of `struct`."""
        value = struct.unpack_from(layout, self.data, self.position)[0]
        self.position += struct.calcsize(layout)
        return int(value)

    def bytes(self, size: int) -> bytes:
        part = self.data[self.position : self.position + max(0, size)]
        self.position += max(0, size)
        return part

    def uvarint(self) -> int:
        shift = result = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7

    def string(self, *, flexible: bool = False) -> str:
        return self.bytes(self.uvarint() - 1 if flexible else self.number(">h")).decode()

    def count(self, *, flexible: bool = False) -> int:
        """Read the number of elements of an array; -1 is a null array."""
        return self.uvarint() - 1 if flexible else self.number(">i")
