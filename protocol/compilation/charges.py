"""Charges for decoded elements: upper bounds of the memory that one element of a request takes, in bytes.

A decoder charges the elements of an array before it creates them. With a limit of the charge, a small request with many
empty elements is refused before it can fill the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.protocol.compilation.charges_table import STRUCT_BYTES

if TYPE_CHECKING:
    from odradek.protocol.schema import FieldRow

SLOT_BYTES: Final = 24
"""Bytes of the place of one element in a list. A list that grows copies its places, so that two copies exist."""
BLOB_BYTES: Final = 80
"""Bytes of an empty string or bytes object that is not shared."""
BLOB_FACTOR: Final = {"string": 4, "bytes": 1}
"""Bytes in memory per byte on the wire. One character above U+FFFF makes each character of a string take four bytes."""
TAG_BYTES: Final = 200
"""Bytes of one unknown tagged field: tuple, tag, bytes object, and its places in a list and in a tuple."""
UNKNOWN_STRUCT_BYTES: Final = 1_024
"""Charge for structs outside of requests. Their decoders run without a limit."""
FIXED_BYTES: Final = {"uuid": 240}
NUMBER_BYTES: Final = 56
"""Bytes of one number: the object, and places in the tuple that is unpacked and in the list."""


def element_bytes(row: FieldRow) -> int:
    """Return the charge for one element of the array `row`. Strings and bytes are charged by size in addition."""
    if row.struct is not None:
        name = f"{row.struct.__module__.rpartition('.')[2]}.{row.struct.__name__}"
        return STRUCT_BYTES.get(name, UNKNOWN_STRUCT_BYTES) + SLOT_BYTES
    if row.kind in {"string", "bytes"}:
        return SLOT_BYTES
    return FIXED_BYTES.get(row.kind, NUMBER_BYTES)
