"""The newest offset of each key in the dirty part of a log, within a bound of memory.

A key is represented by a hash of 128 bits, as in Kafka, so the memory does not depend on the length of keys. Kafka uses MD5. A client
can construct two keys with equal MD5 hashes, and compaction then removes the value of one. For BLAKE2b that is not feasible.
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
SHARDS = 64
"""Number of tables. One large table would block the event loop for tens of milliseconds when it grows or is freed."""


class OffsetMap:
    """Map keys to their newest offset. `latest_offset` is the last offset checked; later records are not in the map."""

    def __init__(self, buffer_bytes: int, load_factor: float) -> None:
        """Create the map. The arguments are log.cleaner.dedupe.buffer.size and log.cleaner.io.buffer.load.factor."""
        self.entries_max = max(1, int(buffer_bytes * load_factor) // ENTRY_BYTES)
        self.latest_offset = -1
        self._free = self.entries_max
        self._shards: list[dict[bytes, int]] = [{} for _ in range(SHARDS)]

    def __len__(self) -> int:
        return self.entries_max - self._free

    def put(self, key: Buffer, offset: int) -> bool:
        """Set the offset of a key. Return False, and change nothing, if the map is full; for a known key, too, as in Kafka."""
        if not self._free:
            return False
        digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
        shard = self._shards[digest[0] % SHARDS]
        if digest not in shard:
            self._free -= 1
        shard[digest] = offset
        self.latest_offset = offset
        return True

    def get(self, key: Buffer) -> int:
        """Return the newest offset of the key, NOT_FOUND if it is not in the map."""
        digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
        return self._shards[digest[0] % SHARDS].get(digest, NOT_FOUND)

    def note_offset(self, offset: int) -> None:
        """Note that all records up to `offset` were checked."""
        self.latest_offset = max(self.latest_offset, offset)

    def release(self) -> bool:
        """Free one table. Return whether there are more. The map cannot be used afterwards."""
        if self._shards:
            self._shards.pop().clear()
        return bool(self._shards)
