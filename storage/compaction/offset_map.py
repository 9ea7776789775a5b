"""The newest offset of each key in the part of a log that is being compacted, within a bound of memory.

Keys are known by a hash of 128 bits, as in Kafka, so that the memory does not depend on their length. Kafka's is MD5, for which
anybody can make two keys that are one to it, and lose the value of one; for BLAKE2b nobody can.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.storage.disk.port import Buffer

DIGEST_BYTES = 16
ENTRY_BYTES = 176
"""What an entry takes of CPython's memory: the digest 56, the offset 32, its place in the table 88 where that has just grown."""
NOT_FOUND = -1
SHARDS = 64
"""One large table would keep the loop for tens of milliseconds when it grows, and when it goes."""


class OffsetMap:
    """`latest_offset` is the last offset that has been looked at: what lies behind it is not in here."""

    def __init__(self, buffer_bytes: int, load_factor: float) -> None:
        """Properties log.cleaner.dedupe.buffer.size and log.cleaner.io.buffer.load.factor."""
        self.entries_max = max(1, int(buffer_bytes * load_factor) // ENTRY_BYTES)
        self.latest_offset = -1
        self._room = self.entries_max
        self._shards: list[dict[bytes, int]] = [{} for _ in range(SHARDS)]

    def __len__(self) -> int:
        return self.entries_max - self._room

    def put(self, key: Buffer, offset: int) -> bool:
        """False, and nothing has changed, when there is no room: also for a key that is known, as in Kafka."""
        if not self._room:
            return False
        digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
        shard = self._shards[digest[0] % SHARDS]
        if digest not in shard:
            self._room -= 1
        shard[digest] = offset
        self.latest_offset = offset
        return True

    def get(self, key: Buffer) -> int:
        """The newest offset of the key, -1 when it was not met."""
        digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
        return self._shards[digest[0] % SHARDS].get(digest, NOT_FOUND)

    def note_offset(self, offset: int) -> None:
        """Everything up to `offset` has been looked at."""
        self.latest_offset = max(self.latest_offset, offset)

    def release(self) -> bool:
        """Let go of a part of the memory; whether there is more. The map is of no use from then on."""
        if self._shards:
            self._shards.pop().clear()
        return bool(self._shards)
