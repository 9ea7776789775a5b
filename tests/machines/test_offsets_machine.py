"""The offsets of groups against a model written apart, against their own log and against what compaction leaves of it,
after every step.
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
"""Three tombstones."""
RETENTIONS = [-1, -1, -1, 1_000, 2 * WEEK_MS]
LEAPS_MS = [1, 1_000, WEEK_MS - 1, WEEK_MS]

groups = st.sampled_from(GROUPS)
topics = st.sampled_from(TOPICS)
producers = st.sampled_from(PRODUCERS)
partitions = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True)
topic_ids = st.sampled_from([0, 7, 8])
rarely = st.sampled_from([False] * 4 + [True])


class OffsetsMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.rig = OffsetsRig(config=GroupConfig(record_batch_bytes_max=BATCH_BYTES_MAX))
        self.model = Model()
        self.next_value = 0
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.rng = Random(0)

    def values(self, topic: str, parts: list[int]) -> dict[tuple[str, int], int]:
        """No two commits are of the same offset, so that none can be taken for another."""
        self.next_value += len(parts)
        return {(topic, part): self.next_value - index for index, part in enumerate(parts)}

    # ---- requests ---------------------------------------------------------------------------------------------------

    @rule(group=groups, topic=topics, parts=partitions, retention_ms=st.sampled_from(RETENTIONS), topic_id=topic_ids)
    def commit(self, group: str, topic: str, parts: list[int], retention_ms: int, topic_id: int) -> None:
        values, now_ms, start = self.values(topic, parts), self.rig.now_ms, self.rig.end
        command = commit(group, values, version=4, retention_ms=retention_ms, topic_id=UUID(int=topic_id))
        assert errors(self.rig.do(command)) == dict.fromkeys(values, "NONE")
        expire_ms = -1 if retention_ms == -1 else now_ms + retention_ms
        for index, (part, value) in enumerate(values.items()):
            offset = Offset(value, now_ms, expire_ms, topic_id if expire_ms == -1 else 0, start + index)
            self.model.commit((group, *part), offset)

    @rule(producer=producers, group=groups, topic=topics, parts=partitions)
    def commit_in_transaction(self, producer: int, group: str, topic: str, parts: list[int]) -> None:
        values, start = self.values(topic, parts), self.rig.end
        command = commit_in_transaction(producer, group, values, epoch=self.epochs[producer])
        assert errors(self.rig.do(command)) == dict.fromkeys(values, "NONE")
        for index, (part, value) in enumerate(values.items()):
            self.model.promise(producer, (group, *part), Offset(value, self.rig.now_ms, -1, 0, start + index))

    @rule(producer=producers, is_commit=st.booleans(), tv2=st.booleans())
    def end(self, producer: int, is_commit: bool, tv2: bool) -> None:
        """The marker of the second generation, or of a fencing abort, has the next epoch already (KIP-890)."""
        self.epochs[producer] += tv2
        self.rig.marker(producer, commit=is_commit, epoch=self.epochs[producer])
        self.model.end(producer, commit=is_commit)

    @rule(group=groups, topic=topics, parts=partitions, stable=st.booleans(), topic_id=topic_ids)
    def fetch(self, group: str, topic: str, parts: list[int], stable: bool, topic_id: int) -> None:
        places = [(topic, part) for part in parts]
        found = fetched(self.rig.do(fetch(group, *places, stable=stable, topic_id=UUID(int=topic_id))))
        assert found == {place: self.model.fetch((group, *place), topic_id, stable=stable) for place in places}
        assert fetched(self.rig.do(fetch(group, stable=stable))) == self.model.fetch_all(group, stable=stable)

    @rule(group=groups, topic=topics, parts=partitions)
    def delete(self, group: str, topic: str, parts: list[int]) -> None:
        places = [(topic, part) for part in parts]
        told = errors(self.rig.do(delete(group, *places)))
        if group not in self.model.groups:
            assert told == "GROUP_ID_NOT_FOUND"
        else:
            assert told == {place: self.model.delete((group, *place)) for place in places}

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        assert self.rig.do(c.DeleteGroup(group)) == self.model.delete_group(group)

    @rule(topic=topics, topic_id=st.sampled_from([7, 8]), really=rarely)
    def delete_topic(self, topic: str, topic_id: int, really: bool) -> None:
        if really:
            self.rig.do(c.TopicsDeleted((c.DeletedTopic(UUID(int=topic_id).bytes, topic),)))
            self.model.topic_deleted(topic, topic_id)

    # ---- beside the requests ----------------------------------------------------------------------------------------

    @rule(leap_ms=st.sampled_from(LEAPS_MS), sweeps=st.booleans())
    def time_passes(self, leap_ms: int, sweeps: bool) -> None:
        self.rig.now_ms += leap_ms
        if sweeps:
            self.rig.sweep()
            self.model.sweep(self.rig.now_ms)

    @rule(group=groups, subscribed=st.lists(topics, unique=True), members=st.booleans())
    def members_come_and_go(self, group: str, subscribed: list[str], members: bool) -> None:
        since_ms = self.rig.now_ms
        self.rig.append(group_record(group, members=members, topics=subscribed, since_ms=since_ms))
        self.model.groups[group] = Members(tuple(subscribed) if members else None, since_ms)

    @rule(group=groups, topic=topics, part=st.integers(0, 2), really=rarely)
    def a_tombstone_of_kafkas(self, group: str, topic: str, part: int, really: bool) -> None:
        if really:
            self.rig.append(tombstone((group, topic, part)))
            self.model.erase((group, topic, part))

    @rule(group=groups, really=rarely)
    def the_group_is_forgotten(self, group: str, really: bool) -> None:
        """By its tombstone alone, as when it changes its protocol: its offsets, and what is promised, stay."""
        if really:
            self.rig.append(to_record(GroupMetadataKey(group), None))
            self.model.groups.pop(group, None)

    # ---- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        store, model = self.rig.store, self.model
        committed = {
            (group, topic, partition): shown(packed)
            for group, by_topic in store.groups.items()
            for topic, by_partition in by_topic.items()
            for partition, packed in by_partition.items()
        }
        assert committed == model.committed
        assert store.count == len(committed)
        pending = {pid: {place: shown(packed) for place, packed in own.items()} for pid, own in store.pending.items()}
        assert pending == {pid: own for pid, own in model.pending.items() if own}
        assert store.pending_count == sum(map(len, pending.values()))
        assert self.rig.state.groups.keys() == model.groups.keys()
        for group in GROUPS:
            assert store.has_pending(group) is model.promised_to(group)

    @invariant()
    def replay_gives_the_same_state(self) -> None:
        replayed = self.rig.replayed()
        assert replayed.offsets == self.rig.store
        assert replayed.groups.keys() == self.rig.state.groups.keys()

    @invariant()
    def so_does_the_replay_of_what_compaction_leaves(self) -> None:
        replayed = self.rig.replayed(cleaned(self.rig.log, self.rig.end, self.rng))
        assert replayed.offsets == self.rig.store
        # A group that has nothing but its name is remembered as long as its records are, and that it was forgotten
        # while it had offsets as long as the tombstone is: the next sweep makes both alike.
        store, here, there = self.rig.store, self.rig.state.groups, replayed.groups
        for group in here.keys() - there.keys():
            assert self.model.groups[group] is None
            assert store.count_of(group) == 0
            assert not store.has_pending(group)
        assert all(not there[group].protocol_type for group in there.keys() - here.keys())

    @invariant()
    def no_batch_is_larger_than_its_bound(self) -> None:
        for batch in self.rig.batches:
            size = 61 + sum(25 + len(record.key or b"") for record in batch)
            assert len(batch) == 1 or size <= BATCH_BYTES_MAX or batch[0].value is not None
        self.rig.batches.clear()


def shown(packed: bytes) -> Offset:
    stored: StoredOffset = unpack(packed)
    topic_id = int.from_bytes(stored.topic_id, "big")
    return Offset(stored.offset, stored.commit_ms, stored.expire_ms, topic_id, stored.record_offset)


@pytest.mark.parametrize("examined_max", [2, 1_000])
def test_offsets_behave_like_the_model(monkeypatch: pytest.MonkeyPatch, examined_max: int) -> None:
    monkeypatch.setattr(expiry, "CHECKS_PER_SLICE_MAX", examined_max)
    monkeypatch.setattr(deletion, "CHECKS_PER_SLICE_MAX", examined_max)
    run_machine(OffsetsMachine, examples=100, steps=40)


def walk(rng: Random, steps: int) -> OffsetsMachine:
    """The same machine, driven evenly: Hypothesis looks for short programs, this one for every corner."""
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
        (2, lambda: machine.members_come_and_go(rng.choice(GROUPS), rng.sample(TOPICS, 1), rng.random() < 0.4)),
        (1, lambda: machine.the_group_is_forgotten(rng.choice(GROUPS), really=True)),
        (1, lambda: machine.a_tombstone_of_kafkas(*place()[:2], rng.randrange(3), really=True)),
    ]
    weights = [weight for weight, _ in steps_of]
    for _ in range(steps):
        rng.choices(steps_of, weights)[0][1]()
        machine.the_store_says_what_the_model_says()
        machine.replay_gives_the_same_state()
        machine.so_does_the_replay_of_what_compaction_leaves()
        machine.no_batch_is_larger_than_its_bound()
    return machine


@pytest.mark.parametrize("seed", range(10))
def test_long_walks_agree_with_the_model(seed: int) -> None:
    machine = walk(Random(seed), 300)
    assert machine.rig.end > 0, "a walk without records compares nothing"
