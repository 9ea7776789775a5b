"""Hash of a transactional or group id, and the partition of its coordinator."""

import pytest

from odradek.coordinator.txn import records
from odradek.protocol import hashing
from odradek.protocol.hashing import CACHED_LENGTH_MAX, java_hash, partition_for


@pytest.mark.parametrize(
    ("name", "partition"),
    [("my-txn", 45), ("transactional-id", 31), ("test-txn-0", 24), ("é-txn", 44), ("😀", 49), ("a", 47), ("", 0)],
)
def test_partition_of_an_id_equals_the_partition_in_kafka(name: str, partition: int) -> None:
    assert partition_for(name, 50) == partition


def test_hash_is_signed_and_over_utf_16() -> None:
    assert java_hash("my-txn") == -1_061_187_895
    assert java_hash("😀") == 1_772_899


def test_smallest_hash_maps_to_partition_0() -> None:
    text = "polygenelubricants"
    assert java_hash(text) == -(2**31)
    assert partition_for(text, 50) == 0


def test_long_names_are_not_cached() -> None:
    """The cache would hold more than 1 GiB for 10,000 ids of 128 KiB, even if their requests were refused."""
    caches = (hashing._cached_hash, records._cached_key)
    before = [cache.cache_info().currsize for cache in caches]
    long_id = "long-" * (CACHED_LENGTH_MAX // 5 + 1)
    assert partition_for(long_id, 50) == abs(java_hash(long_id)) % 50
    assert records.decode_key(records.encode_key(long_id)) == long_id
    assert [cache.cache_info().currsize for cache in caches] == before
    hits = [cache.cache_info().hits for cache in caches]
    for _ in range(2):
        assert partition_for("short", 50) == abs(java_hash("short")) % 50
        assert records.decode_key(records.encode_key("short")) == "short"
    assert all(cache.cache_info().hits > count for cache, count in zip(caches, hits, strict=True))
