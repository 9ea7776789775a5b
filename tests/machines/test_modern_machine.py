"""Consumer groups: after each operation the core agrees with an independent model and with the replay of its log."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from odradek.coordinator.group.modern import records
from odradek.coordinator.group.modern.draft import RebalanceExpired
from odradek.coordinator.group.modern.member import MemberState
from odradek.coordinator.group.modern.transitions import TRANSITIONS, Event
from odradek.coordinator.group.records import to_record
from odradek.protocol.errors import Refusal
from odradek.runtime.machine import BUG
from tests.machines.modern_model import Model, Partition
from tests.machines.partition_names import by_topic, epochs_of, new_targets, partitions_of
from tests.machines.transition_visits import note
from tests.support.cell_counts import count
from tests.support.classic_rig import GROUP, NOW_MS
from tests.support.effort import effort, run_machine
from tests.support.modern_rig import ModernRig

if TYPE_CHECKING:
    from collections.abc import Callable


# Two ids share the instance `i`.
INSTANCES: dict[str, str | None] = {"A": None, "B": None, "C": None, "S": "i", "T": "i"}
NAMES = list(INSTANCES)
TOPICS = ["t", "u", "v"]
SIZE_MAX = 4
OWNED = ["assigned"] * 6 + ["everything", "nothing", "absent", "foreign"]
"""Owned partitions of a heartbeat: assigned, also those to revoke, none, no field, or also one of another topic."""
EPOCHS = [0] * 8 + [-1, 1]
INTERVAL_MS = 20_000
WAITS_MS = [1, 5_000, 20_000, 44_999, 45_000, 60_000]
ROUNDS_MAX = 3
"""Maximum heartbeats per member until the group is stable, if all members own exactly what they are assigned."""

names = st.sampled_from(NAMES)
topics = st.sampled_from(TOPICS)
subscriptions = st.frozensets(topics, max_size=3)
rarely = st.sampled_from([False] * 5 + [True])


class ModernMachine(RuleBasedStateMachine):
    """Operations on one consumer group, in the core and in the model."""

    @initialize(interval_ms=st.sampled_from([0, INTERVAL_MS]))
    def start(self, interval_ms: int) -> None:
        self.rig = ModernRig(consumer_max_size=SIZE_MAX, consumer_assignment_interval_ms=interval_ms)
        self.model = Model(SIZE_MAX, NOW_MS, interval_ms)
        self.assignments: dict[str, set[Partition]] = {}
        self.epochs = (1, 1)

    # ---- comparison with the core -----------------------------------------------------------------------------------

    def new_targets(self) -> dict[str, set[Partition]]:
        members = self.model.members
        return new_targets(self.rig.modern, self.model.wanted(), members.keys(), lambda name: members[name].topics)

    def compare(self, name: str, reply: Any, expected: Any) -> None:
        if isinstance(reply, str) or isinstance(expected, str):
            assert reply == expected
            return
        epoch, assignment = expected
        assert reply.member_epoch == epoch
        reply_partitions = None if reply.assignment is None else partitions_of(self.rig.held(reply))
        # An unchanged assignment is sent again if a member epoch of its partitions changed, as in Kafka.
        assert reply_partitions == assignment or (assignment is None and reply_partitions == self.assignments.get(name))
        if reply_partitions is not None:
            self.assignments[name] = reply_partitions

    # ---- requests ---------------------------------------------------------------------------------------------------

    @rule(name=names, subscription=subscriptions)
    def join(self, name: str, subscription: frozenset[str]) -> None:
        instance = INSTANCES[name]
        reply = self.rig.beat(
            name,
            0,
            owned={},
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=sorted(subscription),
            instance_id=instance,
        )
        self.compare(name, reply, self.model.join(name, subscription, instance, self.new_targets))

    @rule(
        name=names,
        change=st.sampled_from(EPOCHS),
        owns=st.sampled_from(OWNED),
        resubscribes=rarely,
        subscription=subscriptions,
    )
    def heartbeat(self, name: str, change: int, owns: str, resubscribes: bool, subscription: frozenset[str]) -> None:
        member = self.model.members.get(name)
        epoch = 1 if member is None else member.epoch + change
        if epoch <= 0:
            return  # 0 and below are JOIN and LEAVE
        owned = self.owned(name, owns)
        reply = self.rig.beat(
            name,
            epoch,
            owned=None if owned is None else by_topic(owned),
            instance_id=INSTANCES[name],
            subscribed_topic_names=sorted(subscription) if resubscribes else None,
        )
        expected = self.model.checked_heartbeat(
            name, INSTANCES[name], epoch, owned, subscription if resubscribes else None, self.new_targets
        )
        self.compare(name, reply, expected)

    def owned(self, name: str, owns: str) -> set[Partition] | None:
        member = self.model.members.get(name)
        if owns == "absent":
            return None
        if member is None or owns == "nothing":
            return set()
        if owns == "everything":
            return member.owned()
        return set(member.assigned) | ({("w", 9)} if owns == "foreign" else set())

    @rule(name=names)
    def leave(self, name: str) -> None:
        reply = self.rig.beat(name, -1, instance_id=INSTANCES[name])
        error = self.model.leave(name, INSTANCES[name])
        assert (reply if isinstance(reply, str) else None) == error

    @rule(name=st.sampled_from(["S", "T"]))
    def leave_static(self, name: str) -> None:
        reply = self.rig.beat(name, -2, instance_id=INSTANCES[name])
        error = self.model.leave_static(name, INSTANCES[name])
        assert (reply if isinstance(reply, str) else None) == error

    @precondition(lambda self: self.model.exists)
    @rule(name=names, change=st.sampled_from([0, 0, -1, -1, -2, 1]), topic=topics, number=st.integers(0, 3))
    def commit(self, name: str, change: int, topic: str, number: int) -> None:
        member = self.model.members.get(name)
        epoch = change if member is None else member.epoch + change
        group, reply_partitions = self.rig.modern, None
        topic_id = self.rig.topic_id(topic).bytes
        try:
            group.check_offset_commit(name, None, epoch, in_transaction=False, api_version=10)
            group.check_partition_commit(name, epoch, topic_id, topic, number)
        except Refusal as refusal:
            reply_partitions = refusal.error.name
        assert reply_partitions == self.model.commit(name, epoch, (topic, number))

    # ---- topics, time and failures ----------------------------------------------------------------------------------

    @rule(topic=topics, count=st.integers(0, 4))
    def topic_changes(self, topic: str, count: int) -> None:
        """Create a topic, add partitions to it, or (`count` 0) delete it."""
        if count == 0:
            if topic in self.model.topics:
                del self.model.topics[topic]
                self.rig.topics.delete(topic)
        elif count > self.model.topics.get(topic, 0):
            self.model.topics[topic] = count
            self.rig.topics.make(topic, count)

    @rule(ms=st.sampled_from(WAITS_MS))
    def time_passes(self, ms: int) -> None:
        self.rig.wait(ms)
        self.model.wait(ms)

    @rule(really=rarely)
    def crash(self, really: bool) -> None:
        if really:
            self.rig.crash()
            self.model.crash()

    @precondition(lambda self: self.model.exists)
    @rule(name=names)
    def stale_timer_fires(self, name: str) -> None:
        """Fire a rebalance timer of a member that already revoked its partitions. Nothing changes."""
        member = self.model.members.get(name)
        if member is not None and self.rig.modern.members[name].state is not MemberState.UNREVOKED_PARTITIONS:
            assert self.rig.do(RebalanceExpired(GROUP, name, member.epoch)) is None

    @rule(name=names, really=rarely)
    def newer_coordinator_stores_unknown_state(self, name: str, really: bool) -> None:
        """Store a member state that this version does not know."""
        member = self.model.members.get(name)
        if not really or member is None or member.revoking or member.epoch <= 0:
            return
        stored = self.rig.modern.members[name]
        record = records.current_assignment_record(GROUP, stored)
        assert record.value is not None
        entry = record.memo.value
        entry.state = 9
        self.rig.log.append(to_record(record.memo.key, entry))
        self.rig.core.apply(len(self.rig.log) - 1, self.rig.log[-1], 7)
        member.unknown, member.unreleased = True, False

    @rule(really=rarely)
    def members_reconcile(self, really: bool) -> None:
        """Let all members reconcile. After ROUNDS_MAX rounds the group is stable, and all partitions are assigned."""
        if not really:
            return
        for name in list(self.model.members):
            member = self.model.members[name]
            if member.epoch == -2 or member.unknown:
                self.leave(name)
        self.time_passes(self.model.interval_ms)
        for _ in range(ROUNDS_MAX):
            for name in list(self.model.members):
                self.heartbeat(name, 0, "assigned", False, frozenset())
        if self.model.members:
            assert self.rig.modern.state_name == "Stable"
            assert {part for member in self.model.members.values() for part in member.assigned} == self.model.wanted()

    # ---- invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def core_matches_model(self) -> None:
        group = self.rig.core.state.groups.get(GROUP)
        assert (group is not None) is self.model.exists
        if group is None:
            return
        group = self.rig.modern
        assert (group.epoch, group.assignment_epoch) == (self.model.epoch, self.model.target_epoch)
        assert group.members.keys() == self.model.members.keys()
        for name, member in self.model.members.items():
            reply_partitions = group.members[name]
            assert (reply_partitions.epoch, reply_partitions.previous_epoch) == (member.epoch, member.previous), name
            assert (epochs_of(reply_partitions.assigned), epochs_of(reply_partitions.revoking)) == (
                member.assigned,
                member.revoking,
            ), name
            assert reply_partitions.topics == tuple(sorted(member.topics))
            assert (reply_partitions.state is MemberState.UNKNOWN) is member.unknown

    @invariant()
    def partitions_have_one_owner_and_replay_agrees(self) -> None:
        self.rig.check()

    @invariant()
    def epochs_do_not_decrease(self) -> None:
        now = (self.model.epoch, self.model.target_epoch)
        assert now >= self.epochs
        assert now[1] >= self.epochs[1]
        self.epochs = now


def test_consumer_groups_match_the_model() -> None:
    run_machine(ModernMachine, examples=150, steps=50)


def walk(rng: Random, steps: int) -> None:
    """Run random operations with fixed weights. Hypothesis prefers short runs, which do not visit every transition."""
    machine = ModernMachine()
    machine.start(interval_ms=rng.choice([0, INTERVAL_MS]))

    def random_topics() -> frozenset[str]:
        return frozenset(rng.sample(TOPICS, rng.randint(0, 3)))

    def heartbeat() -> None:
        machine.heartbeat(rng.choice(NAMES), rng.choice(EPOCHS), rng.choice(OWNED), rng.random() < 0.2, random_topics())

    def commit() -> None:
        if machine.model.exists:
            machine.commit(rng.choice(NAMES), rng.choice([0, -1, -1, -2, 1]), rng.choice(TOPICS), rng.randint(0, 3))

    def fire_stale_timer() -> None:
        if machine.model.exists:
            machine.stale_timer_fires(rng.choice(NAMES))

    steps_of: list[tuple[int, Callable[[], object]]] = [
        (6, lambda: machine.join(rng.choice(NAMES), random_topics())),
        (20, heartbeat),
        (1, lambda: machine.leave(rng.choice(NAMES))),
        (2, lambda: machine.leave_static(rng.choice(["S", "T"]))),
        (3, commit),
        (2, lambda: machine.topic_changes(rng.choice(TOPICS), rng.choice([0, 1, 2, 3, 4]))),
        (3, lambda: machine.time_passes(rng.choice(WAITS_MS))),
        (1, lambda: machine.crash(really=rng.random() < 0.5)),
        (2, fire_stale_timer),
        (2, lambda: machine.newer_coordinator_stores_unknown_state(rng.choice(NAMES), really=True)),
        (1, lambda: machine.members_reconcile(really=rng.random() < 0.5)),
    ]
    weights = [weight for weight, _ in steps_of]
    for _ in range(steps):
        rng.choices(steps_of, weights)[0][1]()
        machine.core_matches_model()
        machine.partitions_have_one_owner_and_replay_agrees()
        machine.epochs_do_not_decrease()


def state_after_change(subscription: frozenset[str] | None) -> str:
    """Return the state of a member with unreleased partitions after it subscribes to other topics before the next
    target is computed.

    If `subscription` is None, a topic of its assignment is deleted instead.
    """
    machine = ModernMachine()
    machine.start(interval_ms=INTERVAL_MS)
    machine.topic_changes("t", 3)
    machine.topic_changes("u", 3)
    both = frozenset({"t", "u"})
    machine.join("A", both)
    machine.join("C", both)
    machine.members_reconcile(really=True)
    machine.leave("C")
    machine.join("B", both)
    machine.join("S", both)
    machine.time_passes(INTERVAL_MS)
    for name in ("A", "B", "S"):
        machine.heartbeat(name, 0, "everything", False, both)
    unreleased = next(name for name, member in machine.model.members.items() if member.unreleased and member.assigned)
    if subscription is None:
        machine.topic_changes(min(machine.model.members[unreleased].assigned)[0], 0)
    machine.heartbeat(unreleased, 0, "everything", subscription is not None, subscription or frozenset())
    machine.core_matches_model()
    return machine.rig.modern.members[unreleased].state.name


def test_unreleased_member_reconciles_after_topic_and_subscription_changes() -> None:
    arrivals = count(TRANSITIONS).arrivals
    before = {cell: visits for cell, visits in arrivals.items() if cell[0] is MemberState.UNRELEASED_PARTITIONS}
    assert state_after_change(None) == "UNREVOKED_PARTITIONS"
    assert state_after_change(frozenset({"v"})) == "UNREVOKED_PARTITIONS"
    assert state_after_change(frozenset(TOPICS)) == "UNRELEASED_PARTITIONS"
    visits = [cell[1:] for cell, visits in before.items() if arrivals[cell] > visits]
    assert set(visits) >= set(RARE)


RARE = [
    (Event.CURRENT, MemberState.UNREVOKED_PARTITIONS),
    (Event.RESUBSCRIBED, MemberState.UNREVOKED_PARTITIONS),
    (Event.RESUBSCRIBED, MemberState.UNRELEASED_PARTITIONS),
]
"""Transitions out of UNRELEASED_PARTITIONS that random walks seldom visit."""


def test_long_walks_visit_every_transition() -> None:
    counts = count(TRANSITIONS)
    visits, arrivals = dict(counts.visits), dict(counts.arrivals)
    for seed in range(effort(200)):
        walk(Random(seed), steps=120)
    unvisited = note(
        "consumer groups",
        (
            (event.name, state.name, counts.visits[state, event] - visits[state, event])
            for state, event in counts.possible
        ),
    )
    not_entered = [
        cell for cell, visits in counts.arrivals.items() if visits == arrivals[cell] and cell[1:] not in RARE
    ]
    assert (unvisited, not_entered) == ([], [])


def test_impossible_event_is_a_bug() -> None:
    assert TRANSITIONS.cells[MemberState.STABLE, Event.NOT_REVOKED] is BUG
