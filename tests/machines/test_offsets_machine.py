"""Committed offsets: the store agrees with an independent model, and with the replay of its log before and after
compaction.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.offset_store import StoredOffset, unpack
from odradek.coordinator.group.offsets import deletion, expiry
from odradek.coordinator.group.offsets.records import tombstone
from odradek.coordinator.group.ports import GroupConfig
from odradek.coordinator.group.records import to_record
from odradek.protocol.records.group_metadata import GroupMetadataKey
from tests.machines.offsets_model import WEEK_MS, Members, Model, Offset
from tests.support.cleaner import cleaned
from tests.support.effort import run_machine
from tests.support.offsets_rig import (
    OffsetsRig,
    commit,
    commit_in_transaction,
    delete,
    errors,
    fetch,
    fetched,
    group_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable

GROUPS = ["g", "h"]
TOPICS = ["t", "u"]
PRODUCERS = [1, 2, 3]
BATCH_BYTES_MAX = 180
"""Maximum bytes of a batch: three tombstones."""
RETENTIONS = [-1, -1, -1, 1_000, 2 * WEEK_MS]
LEAPS_MS = [1, 1_000, WEEK_MS - 1, WEEK_MS]

groups = st.sampled_from(GROUPS)
topics = st.sampled_from(TOPICS)
producers = st.sampled_from(PRODUCERS)
partitions = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True)
topic_ids = st.sampled_from([0, 7, 8])
rarely = st.sampled_from([False] * 4 + [True])


class OffsetsMachine(RuleBasedStateMachine):
    """Operations on the offsets of two groups, in the core and in the model."""

    @initialize()
    def start(self) -> None:
        self.rig = OffsetsRig(config=GroupConfig(record_batch_bytes_max=BATCH_BYTES_MAX))
        self.model = Model()
        self.next_value = 0
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.rng = Random(0)
        self.tombstones: dict[str, int] = {}
        """Group -> offset of its last tombstone."""

    def values(self, topic: str, partition_ids: list[int]) -> dict[tuple[str, int], int]:
        """Return a distinct offset per partition, so that no commit can be mistaken for another one."""
        self.next_value += len(partition_ids)
        return {(topic, partition_id): self.next_value - index for index, partition_id in enumerate(partition_ids)}

    # ---- requests ---------------------------------------------------------------------------------------------------

    @rule(
        group=groups,
        topic=topics,
        partition_ids=partitions,
        retention_ms=st.sampled_from(RETENTIONS),
        topic_id=topic_ids,
    )
    def commit(self, group: str, topic: str, partition_ids: list[int], retention_ms: int, topic_id: int) -> None:
        values, now_ms, start = self.values(topic, partition_ids), self.rig.now_ms, self.rig.end
        command = commit(group, values, version=4, retention_ms=retention_ms, topic_id=UUID(int=topic_id))
        assert errors(self.rig.do(command)) == dict.fromkeys(values, "NONE")
        expire_ms = -1 if retention_ms == -1 else now_ms + retention_ms
        for index, (partition_id, value) in enumerate(values.items()):
            offset = Offset(value, now_ms, expire_ms, topic_id if expire_ms == -1 else 0, start + index)
            self.model.commit((group, *partition_id), offset)

    @rule(producer=producers, group=groups, topic=topics, partition_ids=partitions)
    def commit_in_transaction(self, producer: int, group: str, topic: str, partition_ids: list[int]) -> None:
        values, start = self.values(topic, partition_ids), self.rig.end
        command = commit_in_transaction(producer, group, values, epoch=self.epochs[producer])
        assert errors(self.rig.do(command)) == dict.fromkeys(values, "NONE")
        for index, (partition_id, value) in enumerate(values.items()):
            self.model.commit_pending(
                producer, (group, *partition_id), Offset(value, self.rig.now_ms, -1, 0, start + index)
            )

    @rule(producer=producers, is_commit=st.booleans(), bumps_epoch=st.booleans())
    def end(self, producer: int, is_commit: bool, bumps_epoch: bool) -> None:
        """Append a marker.

        With `bumps_epoch` it has the next producer epoch, as in transactions V2 and fencing aborts (KIP-890).
        """
        self.epochs[producer] += bumps_epoch
        self.rig.marker(producer, commit=is_commit, epoch=self.epochs[producer])
        self.model.end(producer, commit=is_commit)

    @rule(group=groups, topic=topics, partition_ids=partitions, stable=st.booleans(), topic_id=topic_ids)
    def fetch(self, group: str, topic: str, partition_ids: list[int], stable: bool, topic_id: int) -> None:
        partition_names = [(topic, partition_id) for partition_id in partition_ids]
        offsets = fetched(self.rig.do(fetch(group, *partition_names, stable=stable, topic_id=UUID(int=topic_id))))
        assert offsets == {
            place: self.model.fetch((group, *place), topic_id, stable=stable) for place in partition_names
        }
        assert fetched(self.rig.do(fetch(group, stable=stable))) == self.model.fetch_all(group, stable=stable)

    @rule(group=groups, topic=topics, partition_ids=partitions)
    def delete(self, group: str, topic: str, partition_ids: list[int]) -> None:
        partition_names = [(topic, partition_id) for partition_id in partition_ids]
        results = errors(self.rig.do(delete(group, *partition_names)))
        if group not in self.model.groups:
            assert results == "GROUP_ID_NOT_FOUND"
        else:
            assert results == {place: self.model.delete((group, *place)) for place in partition_names}

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        assert self.rig.do(c.DeleteGroup(group)) == self.model.delete_group(group)

    @rule(topic=topics, topic_id=st.sampled_from([7, 8]), really=rarely)
    def delete_topic(self, topic: str, topic_id: int, really: bool) -> None:
        if really:
            self.rig.do(c.TopicsDeleted((c.DeletedTopic(UUID(int=topic_id).bytes, topic),)))
            self.model.topic_deleted(topic, topic_id)

    # ---- time, groups and tombstones --------------------------------------------------------------------------------

    @rule(leap_ms=st.sampled_from(LEAPS_MS), sweeps=st.booleans())
    def time_passes(self, leap_ms: int, sweeps: bool) -> None:
        self.rig.now_ms += leap_ms
        if sweeps:
            self.rig.sweep()
            self.model.sweep(self.rig.now_ms)

    @rule(group=groups, subscribed=st.lists(topics, unique=True), members=st.booleans())
    def group_members_change(self, group: str, subscribed: list[str], members: bool) -> None:
        since_ms = self.rig.now_ms
        self.rig.append(group_record(group, members=members, topics=subscribed, since_ms=since_ms))
        self.model.groups[group] = Members(tuple(subscribed) if members else None, since_ms)

    @rule(group=groups, topic=topics, partition_id=st.integers(0, 2), really=rarely)
    def kafka_tombstone_is_appended(self, group: str, topic: str, partition_id: int, really: bool) -> None:
        if really:
            self.rig.append(tombstone((group, topic, partition_id)))
            self.model.erase((group, topic, partition_id))

    @rule(group=groups, really=rarely)
    def group_tombstone_is_appended(self, group: str, really: bool) -> None:
        """Append only the group's tombstone, as a change of its protocol does. Committed and pending offsets stay."""
        if really:
            self.tombstones[group] = self.rig.end
            self.rig.append(to_record(GroupMetadataKey(group), None))
            self.model.groups.pop(group, None)

    # ---- invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def store_matches_model(self) -> None:
        store, model = self.rig.store, self.model
        committed = {
            (group, topic, partition): to_model(packed)
            for group, by_topic in store.groups.items()
            for topic, by_partition in by_topic.items()
            for partition, packed in by_partition.items()
        }
        assert committed == model.committed
        assert store.count == len(committed)
        pending = {
            pid: {place: to_model(packed) for place, packed in offsets_.items()}
            for pid, offsets_ in store.pending.items()
        }
        assert pending == {pid: offsets_ for pid, offsets_ in model.pending.items() if offsets_}
        assert store.pending_count == sum(map(len, pending.values()))
        assert self.rig.state.groups.keys() == model.groups.keys()
        for group in GROUPS:
            assert store.has_pending(group) is model.has_pending(group)

    @invariant()
    def replay_gives_the_same_state(self) -> None:
        replayed = self.rig.replayed()
        assert replayed.offsets == self.rig.store
        assert replayed.groups.keys() == self.rig.state.groups.keys()

    @invariant()
    def replay_of_compacted_log_gives_the_same_state(self) -> None:
        replayed = self.rig.replayed(cleaned(self.rig.log, self.rig.end, self.rng))
        assert replayed.offsets == self.rig.store
        # A group without offsets exists until its records are compacted, its removal is known until its tombstone is.
        # The next sweep makes both states equal.
        # As in Apache Kafka, a group whose tombstone follows its offsets exists again from its next commit on. If that
        # commit is deleted and compacted away, only the older offsets are left, and they do not create the group.
        store, groups_, replayed_groups = self.rig.store, self.rig.state.groups, replayed.groups
        for group in groups_.keys() - replayed_groups.keys():
            assert self.model.groups[group] is None
            offsets = [offset for place, offset in self.model.committed.items() if place[0] == group]
            assert all(offset.position < self.tombstones.get(group, 0) for offset in offsets)
            assert not store.has_pending(group)
        assert all(not replayed_groups[group].protocol_type for group in replayed_groups.keys() - groups_.keys())

    @invariant()
    def batches_respect_the_size_limit(self) -> None:
        for batch in self.rig.batches:
            size = 61 + sum(25 + len(record.key or b"") for record in batch)
            assert len(batch) == 1 or size <= BATCH_BYTES_MAX or batch[0].value is not None
        self.rig.batches.clear()


def to_model(packed: bytes) -> Offset:
    stored: StoredOffset = unpack(packed)
    topic_id = int.from_bytes(stored.topic_id, "big")
    return Offset(stored.offset, stored.commit_ms, stored.expire_ms, topic_id, stored.record_offset)


@pytest.mark.parametrize("examined_max", [2, 1_000])
def test_offsets_match_the_model(monkeypatch: pytest.MonkeyPatch, examined_max: int) -> None:
    monkeypatch.setattr(expiry, "CHECKS_PER_SLICE_MAX", examined_max)
    monkeypatch.setattr(deletion, "CHECKS_PER_SLICE_MAX", examined_max)
    run_machine(OffsetsMachine, examples=100, steps=40)


def walk(rng: Random, steps: int) -> OffsetsMachine:
    """Run random operations with fixed weights. Hypothesis prefers short runs, which do not visit every transition."""
    machine = OffsetsMachine()
    machine.start()
    machine.rng = rng

    def place() -> tuple[str, str, list[int]]:
        return rng.choice(GROUPS), rng.choice(TOPICS), rng.sample(range(3), rng.randint(1, 3))

    steps_of: list[tuple[int, Callable[[], Any]]] = [
        (8, lambda: machine.commit(*place(), rng.choice(RETENTIONS), rng.choice([0, 7, 8]))),
        (8, lambda: machine.commit_in_transaction(rng.choice(PRODUCERS), *place())),
        (6, lambda: machine.end(rng.choice(PRODUCERS), rng.random() < 0.6, rng.random() < 0.5)),
        (4, lambda: machine.fetch(*place(), rng.random() < 0.5, rng.choice([0, 7, 8]))),
        (3, lambda: machine.delete(*place())),
        (1, lambda: machine.delete_group(rng.choice(GROUPS))),
        (1, lambda: machine.delete_topic(rng.choice(TOPICS), rng.choice([7, 8]), really=True)),
        (4, lambda: machine.time_passes(rng.choice(LEAPS_MS), rng.random() < 0.5)),
        (2, lambda: machine.group_members_change(rng.choice(GROUPS), rng.sample(TOPICS, 1), rng.random() < 0.4)),
        (1, lambda: machine.group_tombstone_is_appended(rng.choice(GROUPS), really=True)),
        (1, lambda: machine.kafka_tombstone_is_appended(*place()[:2], rng.randrange(3), really=True)),
    ]
    weights = [weight for weight, _ in steps_of]
    for _ in range(steps):
        rng.choices(steps_of, weights)[0][1]()
        machine.store_matches_model()
        machine.replay_gives_the_same_state()
        machine.replay_of_compacted_log_gives_the_same_state()
        machine.batches_respect_the_size_limit()
    return machine


@pytest.mark.parametrize("seed", range(10))
def test_long_walks_match_the_model(seed: int) -> None:
    machine = walk(Random(seed), 300)
    assert machine.rig.end > 0, "the walk must write records"
