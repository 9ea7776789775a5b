from __future__ import annotations

import pytest

from odradek.protocol.hashing import partition_for
from odradek.testing.placement import new_replicas, partition_of


@pytest.mark.parametrize(
    "name",
    ["", "a", "shop", "polygenelubricants", "größe", "\U0001f600", *map(str, range(1_000_000_000, 1_000_000_050))],
)
def test_partition_is_that_of_the_coordinators(name: str) -> None:
    assert partition_of(name, 50) == partition_for(name, 50)


@pytest.mark.parametrize(
    ("replicas", "target", "expected"),
    [([1, 2, 3], 2, [2, 1, 3]), ([1], 3, [3]), ([1, 2], 3, [3, 1]), ([1, 2], 1, [1, 2])],
)
def test_target_becomes_the_preferred_leader(replicas: list[int], target: int, expected: list[int]) -> None:
    assert new_replicas(replicas, target) == expected
