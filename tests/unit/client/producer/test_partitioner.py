"""Partitioner: partitions of keys as in Kafka's producers. The vectors are those of Kafka's UtilsTest."""

from __future__ import annotations

import pytest

from odradek.client.producer.partitioner import murmur2, partition_of

VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), VECTORS.items())
def test_murmur2_is_that_of_kafka(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32


def test_a_partition_is_never_negative() -> None:
    assert {partition_of(key, 3) for key in VECTORS} <= {0, 1, 2}
