"""Placement of new replicas: spread over racks, then evenly over brokers, with an active broker as leader."""

from __future__ import annotations

import random
from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cluster.controller.partitions import placement
from odradek.cluster.controller.partitions.placement import place
from odradek.cluster.metadata.image import BrokerImage, MetadataImage
from odradek.protocol.errors import Refusal


def image(*brokers: tuple[str | None, bool]) -> MetadataImage:
    """Return an image with one broker for each (rack, fenced), with ids from 1."""
    brokers_by_id = {
        number: BrokerImage(number, number, UUID(int=number), (), {}, rack, fenced, False, (UUID(int=1000 + number),))
        for number, (rack, fenced) in enumerate(brokers, 1)
    }
    return MetadataImage(brokers=brokers_by_id)


BROKERS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.booleans()), min_size=1, max_size=9)


@given(BROKERS, st.integers(1, 5), st.integers(1, 40), st.integers(0, 7), st.integers(0, 99))
def test_every_placement_is_valid_and_balanced(
    brokers: list[tuple[str | None, bool]], factor: int, partitions: int, first: int, seed: int
) -> None:
    cluster = image(*brokers)
    active = [number for number, broker in cluster.brokers.items() if broker.is_active]
    if factor > len(brokers) or not active:
        with pytest.raises(Refusal):
            place(cluster, random.Random(seed), first_partition=first, partitions=partitions, replication_factor=factor)
        return
    rows = place(cluster, random.Random(seed), first_partition=first, partitions=partitions, replication_factor=factor)
    racks = {broker.rack for broker in cluster.brokers.values()}
    for row in rows:
        assert len(set(row)) == len(row) == factor
        assert row[0] in active
        assert len({cluster.brokers[number].rack for number in row}) == min(factor, len(racks))
    led = Counter(row[0] for row in rows)
    assert max(led.values()) - min(led[number] for number in active) <= 1


@given(BROKERS, st.integers(1, 5), st.integers(1, 40), st.integers(0, 7), st.integers(0, 99))
def test_placement_of_a_partition_does_not_depend_on_the_other_ones(
    brokers: list[tuple[str | None, bool]], factor: int, partitions: int, first: int, seed: int
) -> None:
    cluster = image(*brokers)
    if factor > len(brokers) or not any(cluster.active_brokers()):
        return

    def placed(index: int, count: int) -> list[tuple[int, ...]]:
        return place(cluster, random.Random(seed), first_partition=index, partitions=count, replication_factor=factor)

    assert placed(first, partitions) == [placed(index, 1)[0] for index in range(first, first + partitions)]


def test_each_different_placement_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three brokers have six different ones: three leaders, and two orders of the followers."""
    computed = []
    spread = placement._spread

    def counting(leader: BrokerImage, candidates: list[BrokerImage], count: int) -> list[BrokerImage]:
        computed.append(leader.broker_id)
        return spread(leader, candidates, count)

    monkeypatch.setattr(placement, "_spread", counting)
    cluster = image((None, False), (None, False), (None, False))
    rows = place(cluster, random.Random(1), first_partition=0, partitions=1_000, replication_factor=3)
    assert len(set(rows)) == len(computed) == 6


def test_followers_of_one_leader_are_spread_over_all_brokers() -> None:
    rows = place(image(*[(None, False)] * 4), random.Random(1), first_partition=0, partitions=12, replication_factor=2)
    assert Counter(rows) == Counter({(a, b): 1 for a in range(1, 5) for b in range(1, 5) if a != b})


def test_fenced_brokers_come_last_and_added_partitions_continue_the_order() -> None:
    cluster = image((None, False), (None, True), (None, False))
    rows = place(cluster, random.Random(0), first_partition=0, partitions=4, replication_factor=3)
    assert [row[-1] for row in rows] == [2, 2, 2, 2]
    assert [row[0] for row in rows] == [rows[0][0], rows[1][0]] * 2
    later = place(cluster, random.Random(0), first_partition=4, partitions=1, replication_factor=3)
    assert later[0][0] == rows[0][0]
