"""Map each key in the dirty part of a log to its newest offset, in bounded memory.

A key is represented by a hash of 128 bits, as in Kafka, so the memory does not depend on the length of keys. Kafka uses
MD5. A client can construct two keys with equal MD5 hashes, and compaction then removes the value of one. With BLAKE2b
that is not feasible.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.protocol.schema import Buffer

DIGEST_BYTES = 16
ENTRY_BYTES = 176
"""Memory per entry in CPython: 56 for the digest, 32 for the offset, 88 for the slot in a table that has just grown."""
NOT_FOUND = -1
TABLES = 64
"""Hash tables per map.

One large table would block the event loop for tens of milliseconds when it grows or is freed.
"""


LARGE_KEY_BYTES = 256 * 1024
"""Bytes of a key above which its hash is computed in a thread: about 0.3 ms. A compressed batch can have larger keys
than max.message.bytes."""


def key_digest(key: Buffer) -> bytes:
    """Return the hash that represents a key."""
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


class OffsetMap:
    """Newest offset of each key. `latest_offset` is the last offset checked; later records are not in the map."""

    def __init__(self, buffer_bytes: int, load_factor: float) -> None:
        """Size the map by log.cleaner.dedupe.buffer.size and log.cleaner.io.buffer.load.factor."""
        self.entries_max = max(1, int(buffer_bytes * load_factor) // ENTRY_BYTES)
        self.latest_offset = -1
        self._free = self.entries_max
        self._tables: list[dict[bytes, int]] = [{} for _ in range(TABLES)]

    def __len__(self) -> int:
        return self.entries_max - self._free

    def put(self, digest: bytes, offset: int) -> bool:
        """Set the offset of the key with the hash `digest` (`key_digest`).

        Return False without a change if the map is full, also for a known key, as in Kafka.
        """
        if not self._free:
            return False
        table = self._tables[digest[0] % TABLES]
        if digest not in table:
            self._free -= 1
        table[digest] = offset
        self.latest_offset = offset
        return True

    def get(self, digest: bytes) -> int:
        """Return the newest offset of the key with the hash `digest`; NOT_FOUND if it is not in the map."""
        return self._tables[digest[0] % TABLES].get(digest, NOT_FOUND)

    def note_offset(self, offset: int) -> None:
        """Set `latest_offset` to `offset` if that is greater: all records up to there were checked."""
        self.latest_offset = max(self.latest_offset, offset)

    def release(self) -> bool:
        """Free one hash table. Return True if there are more. The map cannot be used afterwards."""
        if self._tables:
            self._tables.pop().clear()
        return bool(self._tables)
