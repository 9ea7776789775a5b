"""Map a transactional id or group id to the partition of its coordinator's topic, with Java's hash function."""

from functools import lru_cache
from typing import Final

_INT32: Final = 1 << 32
_INT_MIN: Final = -(1 << 31)
CACHED_NAMES_MAX: Final = 10_000
"""Maximum names in the cache of one process."""
CACHED_LENGTH_MAX: Final = 255
"""Maximum characters of a cached name. An id can have 32 KiB, and a client could fill the cache with such ids."""


def java_hash(text: str) -> int:
    """Return String.hashCode of `text`: s[0]*31^(n-1) + ... over UTF-16 code units, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) % _INT32
    return value - _INT32 if value >= _INT32 // 2 else value


def partition_for(name: str, count: int) -> int:
    """Return abs(hash) % count. As in Kafka's Utils.abs, the absolute value of -2^31 is 0."""
    value = _cached_hash(name) if len(name) <= CACHED_LENGTH_MAX else java_hash(name)
    return 0 if value == _INT_MIN else abs(value) % count


_cached_hash: Final = lru_cache(maxsize=CACHED_NAMES_MAX)(java_hash)
