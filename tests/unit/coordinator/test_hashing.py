import pytest

from coordinator.hashing import java_hash, partition_for


@pytest.mark.parametrize(
    ("name", "partition"),
    [("my-txn", 45), ("transactional-id", 31), ("test-txn-0", 24), ("é-txn", 44), ("😀", 49), ("a", 47), ("", 0)],
)
def test_partitions_are_those_of_java(name: str, partition: int) -> None:
    assert partition_for(name, 50) == partition


def test_hashes_are_signed_and_over_utf_16() -> None:
    assert java_hash("my-txn") == -1_061_187_895
    assert java_hash("😀") == 1_772_899


def test_the_smallest_hash_goes_to_partition_0() -> None:
    smallest = "polygenelubricants"
    assert java_hash(smallest) == -(2**31)
    assert partition_for(smallest, 50) == 0
