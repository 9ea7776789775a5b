"""Consumer groups against a model written apart, and against their own log, after every step."""

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
from tests.machines.modern_model import Model, Part
from tests.machines.partition_names import by_topic, new_targets, parts, since
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
OWNED = ["as told"] * 6 + ["everything", "nothing", "does not say", "somebody else's"]
EPOCHS = [0] * 8 + [-1, 1]
INTERVAL_MS = 20_000
WAITS_MS = [1, 5_000, 20_000, 44_999, 45_000, 60_000]
ROUNDS_MAX = 3
"""Heartbeats that each member needs at most, when all do as they are told and nothing else happens."""

names = st.sampled_from(NAMES)
topics = st.sampled_from(TOPICS)
subscriptions = st.frozensets(topics, max_size=3)
rarely = st.sampled_from([False] * 5 + [True])


class ModernMachine(RuleBasedStateMachine):
    @initialize(interval_ms=st.sampled_from([0, INTERVAL_MS]))
    def start(self, interval_ms: int) -> None:
        self.rig = ModernRig(consumer_max_size=SIZE_MAX, consumer_assignment_interval_ms=interval_ms)
        self.model = Model(SIZE_MAX, NOW_MS, interval_ms)
        self.told: dict[str, set[Part]] = {}
        self.epochs = (1, 1)

    # ---- from the core ----------------------------------------------------------------------------------------------

    def new_targets(self) -> dict[str, set[Part]]:
        members = self.model.members
        return new_targets(self.rig.modern, self.model.wanted(), members.keys(), lambda name: members[name].topics)

    def compare(self, name: str, reply: Any, expected: Any) -> None:
        if isinstance(reply, str) or isinstance(expected, str):
            assert reply == expected
            return
        epoch, assignment = expected
        assert reply.member_epoch == epoch
        got = None if reply.assignment is None else parts(self.rig.held(reply))
        # What has been held since before may have got another epoch: Kafka tells it again.
        assert got == assignment or (assignment is None and got == self.told.get(name))
        if got is not None:
            self.told[name] = got

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
    def beat(self, name: str, change: int, owns: str, resubscribes: bool, subscription: frozenset[str]) -> None:
        member = self.model.members.get(name)
        epoch = 1 if member is None else member.epoch + change
        if epoch <= 0:
            return  # another request
        owned = self.owned(name, owns)
        reply = self.rig.beat(
            name,
            epoch,
            owned=None if owned is None else by_topic(owned),
            instance_id=INSTANCES[name],
            subscribed_topic_names=sorted(subscription) if resubscribes else None,
        )
        expected = self.model.beat(
            name, INSTANCES[name], epoch, owned, subscription if resubscribes else None, self.new_targets
        )
        self.compare(name, reply, expected)

    def owned(self, name: str, owns: str) -> set[Part] | None:
        member = self.model.members.get(name)
        if owns == "does not say":
            return None
        if member is None or owns == "nothing":
            return set()
        if owns == "everything":
            return member.all()
        return set(member.has) | ({("w", 9)} if owns == "somebody else's" else set())

    @rule(name=names)
    def leave(self, name: str) -> None:
        reply = self.rig.beat(name, -1, instance_id=INSTANCES[name])
        refused = self.model.leave(name, INSTANCES[name])
        assert (reply if isinstance(reply, str) else None) == refused

    @rule(name=st.sampled_from(["S", "T"]))
    def away(self, name: str) -> None:
        reply = self.rig.beat(name, -2, instance_id=INSTANCES[name])
        refused = self.model.away(name, INSTANCES[name])
        assert (reply if isinstance(reply, str) else None) == refused

    @precondition(lambda self: self.model.exists)
    @rule(name=names, change=st.sampled_from([0, 0, -1, -1, -2, 1]), topic=topics, number=st.integers(0, 3))
    def commit(self, name: str, change: int, topic: str, number: int) -> None:
        member = self.model.members.get(name)
        epoch = change if member is None else member.epoch + change
        group, got = self.rig.modern, None
        topic_id = self.rig.topic_id(topic).bytes
        try:
            group.check_offset_commit(name, None, epoch, in_transaction=False, api_version=10)
            group.check_partition_commit(name, epoch, topic_id, topic, number)
        except Refusal as refusal:
            got = refusal.error.name
        assert got == self.model.commit(name, epoch, (topic, number))

    # ---- the world --------------------------------------------------------------------------------------------------

    @rule(topic=topics, count=st.integers(0, 4))
    def topic_changes(self, topic: str, count: int) -> None:
        """Made, grown, or (no partitions) deleted."""
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
    def a_clock_strikes_too_late(self, name: str) -> None:
        """The member has given up meanwhile what it was for."""
        member = self.model.members.get(name)
        if member is not None and self.rig.modern.members[name].state is not MemberState.UNREVOKED_PARTITIONS:
            assert self.rig.do(RebalanceExpired(GROUP, name, member.epoch)) is None

    @rule(name=names, really=rarely)
    def a_newer_coordinator_was_here(self, name: str, really: bool) -> None:
        """And has left the member in a state that this one does not know."""
        member = self.model.members.get(name)
        if not really or member is None or member.giving or member.epoch <= 0:
            return
        stored = self.rig.modern.members[name]
        record = records.current_assignment_record(GROUP, stored)
        assert record.value is not None
        entry = record.memo.value
        entry.state = 9
        self.rig.log.append(to_record(record.memo.key, entry))
        self.rig.core.apply(len(self.rig.log) - 1, self.rig.log[-1], 7)
        member.unknown, member.waiting = True, False

    @rule(really=rarely)
    def all_do_as_they_are_told(self, really: bool) -> None:
        """Whoever is there: after a few rounds each has its target, and everything is somebody's."""
        if not really:
            return
        for name in list(self.model.members):
            member = self.model.members[name]
            if member.epoch == -2 or member.unknown:
                self.leave(name)
        self.time_passes(self.model.interval_ms)
        for _ in range(ROUNDS_MAX):
            for name in list(self.model.members):
                self.beat(name, 0, "as told", False, frozenset())
        if self.model.members:
            assert self.rig.modern.state_name == "Stable"
            assert {part for member in self.model.members.values() for part in member.has} == self.model.wanted()

    # ---- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def the_core_says_what_the_model_says(self) -> None:
        group = self.rig.core.state.groups.get(GROUP)
        assert (group is not None) is self.model.exists
        if group is None:
            return
        group = self.rig.modern
        assert (group.epoch, group.assignment_epoch) == (self.model.epoch, self.model.target_epoch)
        assert group.members.keys() == self.model.members.keys()
        for name, member in self.model.members.items():
            got = group.members[name]
            assert (got.epoch, got.previous_epoch) == (member.epoch, member.previous), name
            assert (since(got.assigned), since(got.revoking)) == (member.has, member.giving), name
            assert got.topics == tuple(sorted(member.topics))
            assert (got.state is MemberState.UNKNOWN) is member.unknown

    @invariant()
    def nothing_is_owned_twice_and_the_log_says_the_same(self) -> None:
        self.rig.check()

    @invariant()
    def epochs_rise(self) -> None:
        now = (self.model.epoch, self.model.target_epoch)
        assert now >= self.epochs
        assert now[1] >= self.epochs[1]
        self.epochs = now


def test_the_core_behaves_like_the_model() -> None:
    run_machine(ModernMachine, examples=150, steps=50)


def walk(rng: Random, steps: int) -> None:
    """The same machine, driven evenly: Hypothesis looks for short programs, this one for every corner."""
    machine = ModernMachine()
    machine.start(interval_ms=rng.choice([0, INTERVAL_MS]))

    def some() -> frozenset[str]:
        return frozenset(rng.sample(TOPICS, rng.randint(0, 3)))

    def beat() -> None:
        machine.beat(rng.choice(NAMES), rng.choice(EPOCHS), rng.choice(OWNED), rng.random() < 0.2, some())

    def commit() -> None:
        if machine.model.exists:
            machine.commit(rng.choice(NAMES), rng.choice([0, -1, -1, -2, 1]), rng.choice(TOPICS), rng.randint(0, 3))

    def late() -> None:
        if machine.model.exists:
            machine.a_clock_strikes_too_late(rng.choice(NAMES))

    steps_of: list[tuple[int, Callable[[], object]]] = [
        (6, lambda: machine.join(rng.choice(NAMES), some())),
        (20, beat),
        (1, lambda: machine.leave(rng.choice(NAMES))),
        (2, lambda: machine.away(rng.choice(["S", "T"]))),
        (3, commit),
        (2, lambda: machine.topic_changes(rng.choice(TOPICS), rng.choice([0, 1, 2, 3, 4]))),
        (3, lambda: machine.time_passes(rng.choice(WAITS_MS))),
        (1, lambda: machine.crash(really=rng.random() < 0.5)),
        (2, late),
        (2, lambda: machine.a_newer_coordinator_was_here(rng.choice(NAMES), really=True)),
        (1, lambda: machine.all_do_as_they_are_told(really=rng.random() < 0.5)),
    ]
    weights = [weight for weight, _ in steps_of]
    for _ in range(steps):
        rng.choices(steps_of, weights)[0][1]()
        machine.the_core_says_what_the_model_says()
        machine.nothing_is_owned_twice_and_the_log_says_the_same()
        machine.epochs_rise()


def changes_while_waiting(subscription: frozenset[str] | None) -> str:
    """The state of a member that has something and waits for more, and then subscribes to other topics before the next
    target is computed; None: a topic that it has is deleted.
    """
    machine = ModernMachine()
    machine.start(interval_ms=INTERVAL_MS)
    machine.topic_changes("t", 3)
    machine.topic_changes("u", 3)
    both = frozenset({"t", "u"})
    machine.join("A", both)
    machine.join("C", both)
    machine.all_do_as_they_are_told(really=True)
    machine.leave("C")
    machine.join("B", both)
    machine.join("S", both)
    machine.time_passes(INTERVAL_MS)
    for name in ("A", "B", "S"):
        machine.beat(name, 0, "everything", False, both)
    waiting = next(name for name, member in machine.model.members.items() if member.waiting and member.has)
    if subscription is None:
        machine.topic_changes(min(machine.model.members[waiting].has)[0], 0)
    machine.beat(waiting, 0, "everything", subscription is not None, subscription or frozenset())
    machine.the_core_says_what_the_model_says()
    return machine.rig.modern.members[waiting].state.name


def test_a_member_that_waits_hears_of_changes() -> None:
    arrivals = count(TRANSITIONS).arrivals
    before = {cell: met for cell, met in arrivals.items() if cell[0] is MemberState.UNRELEASED_PARTITIONS}
    assert changes_while_waiting(None) == "UNREVOKED_PARTITIONS"
    assert changes_while_waiting(frozenset({"v"})) == "UNREVOKED_PARTITIONS"
    assert changes_while_waiting(frozenset(TOPICS)) == "UNRELEASED_PARTITIONS"
    met = [cell[1:] for cell, met in before.items() if arrivals[cell] > met]
    assert set(met) >= set(RARE)


RARE = [
    (Event.CURRENT, MemberState.UNREVOKED_PARTITIONS),
    (Event.RESUBSCRIBED, MemberState.UNREVOKED_PARTITIONS),
    (Event.RESUBSCRIBED, MemberState.UNRELEASED_PARTITIONS),
]
"""What UNRELEASED_PARTITIONS may lead to, and a walk seldom meets."""


def test_every_cell_of_the_table_is_met_on_a_long_walk() -> None:
    counts = count(TRANSITIONS)
    visits, arrivals = dict(counts.visits), dict(counts.arrivals)
    for seed in range(effort(200)):
        walk(Random(seed), steps=120)
    unmet = note(
        "consumer groups",
        (
            (event.name, state.name, counts.visits[state, event] - visits[state, event])
            for state, event in counts.possible
        ),
    )
    never = [cell for cell, met in counts.arrivals.items() if met == arrivals[cell] and cell[1:] not in RARE]
    assert (unmet, never) == ([], [])


def test_an_event_that_cannot_be_is_loud() -> None:
    assert TRANSITIONS.cells[MemberState.STABLE, Event.NOT_REVOKED] is BUG
