"""Conversions of groups with members of both protocols: the core agrees with mixed_model.py after each request
(KIP-848).

Requests are arbitrary here. test_mixed_groups_machine.py runs clients that follow the protocol, and checks less.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.join_group import JoinGroupResponse
from odradek.protocol.messages.sync_group import SyncGroupResponse
from tests.machines.mixed_model import REBALANCE_MS, Model
from tests.machines.partition_names import by_topic, epochs_of, new_targets
from tests.support.classic_rig import GROUP, NOW_MS
from tests.support.effort import effort, run_machine
from tests.support.modern_rig import ModernRig, assignment, encode_assignment, metadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.machines.modern_model import Partition

CONSUMERS = {"A": None, "B": None, "S": "i", "T": "i"}
CLASSICS = {"X": None, "Y": None, "P": "i", "Q": "i"}
TOPICS = ("t", "u")
SUBSCRIPTIONS = [("t",), ("t",), ("t", "u"), ("u",)]
OWNED = [*["assigned"] * 5, "everything", "everything", "absent"]
EPOCHS = [*[0] * 8, -1, 1]
SESSION_MS = 10_000
WAITS_MS = [0, 1, 3_000, 9_999, SESSION_MS, 45_000, REBALANCE_MS]
POLICIES = ["bidirectional", "bidirectional", "bidirectional", "upgrade", "downgrade"]

rarely = st.sampled_from([False] * 5 + [True])
consumers, classics = st.sampled_from(list(CONSUMERS)), st.sampled_from(list(CLASSICS))
subscriptions, changes = st.sampled_from(SUBSCRIPTIONS), st.sampled_from(EPOCHS)


def decode_partitions(data: bytes) -> frozenset[Partition]:
    if not data:
        return frozenset()
    return frozenset((topic, number) for topic, numbers in assignment(data).items() for number in numbers)


def plain(reply: Any) -> Any:
    """Convert a reply of the core to the model's tuple."""
    if isinstance(reply, JoinGroupResponse):
        error = ErrorCode(reply.error_code).name
        return ("NONE", reply.member_id, reply.generation_id) if error == "NONE" else (error, reply.member_id)
    if isinstance(reply, SyncGroupResponse):
        return (ErrorCode(reply.error_code).name, decode_partitions(bytes(reply.assignment)))
    return reply


def comparable(response: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the fields of a model's response that this test compares."""
    return tuple(frozenset() if field_value == b"" else field_value for field_value in response[:3])


@dataclass
class Client:
    """State of a client of the classic protocol."""

    instance: str | None
    member_id: str = ""
    generation: int = -1
    waiter: int | None = None
    partitions: frozenset[Partition] = field(default_factory=frozenset)


class ConversionMachine(RuleBasedStateMachine):
    """Requests of both protocols to one group, in the core and in the model."""

    @initialize(policy=st.sampled_from(POLICIES))
    def start(self, policy: str) -> None:
        self.rig = ModernRig(consumer_migration_policy=policy, group_initial_rebalance_delay_ms=0)
        self.model = Model(policy, NOW_MS)
        self.clients = {name: Client(instance) for name, instance in CLASSICS.items()}
        self.kinds: list[str] = []
        for topic in TOPICS:
            self.rig.topics.make(topic, 2)
            self.model.topics[topic] = 2

    # ---- comparison with the core -----------------------------------------------------------------------------------

    def new_targets(self) -> dict[str, set[Partition]]:
        members = self.model.members
        return new_targets(self.rig.modern, self.model.wanted(), members.keys(), lambda name: members[name].topics)

    def compare(self, got: Any, expected: tuple[Any, ...] | None) -> None:
        """Compare a reply. If `expected` is None, the request waits, or the model responded to it in the same step."""
        if expected is None:
            expected = self.model.classic.responses.get(self.rig.waiters)
        if expected is None:
            assert got == self.rig.waiters
        elif isinstance(got, str):
            assert got == expected[0]
        else:
            assert plain(got) == comparable(expected)

    # ---- the consumer protocol --------------------------------------------------------------------------------------

    @rule(name=consumers, subscription=subscriptions)
    def consumer_joins(self, name: str, subscription: tuple[str, ...]) -> None:
        instance = CONSUMERS[name]
        reply = self.rig.beat(
            name,
            0,
            owned={},
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=list(subscription),
            instance_id=instance,
        )
        self.model.wait(0)  # due timers fire before a heartbeat
        expected = self.model.join(name, frozenset(subscription), instance, self.new_targets)
        self.compare_heartbeat(reply, expected)

    @rule(name=consumers, change=changes, owns=st.sampled_from(OWNED))
    def consumer_heartbeats(self, name: str, change: int, owns: str) -> None:
        member = self.model.members.get(name)
        epoch = 1 if member is None else member.epoch + change
        if epoch <= 0:
            return
        choices = {"absent": None, "everything": member.owned() if member else set()}
        owned = choices.get(owns, set(member.assigned) if member else set())
        reply = self.rig.beat(
            name, epoch, owned=None if owned is None else by_topic(owned), instance_id=CONSUMERS[name]
        )
        self.model.wait(0)
        self.compare_heartbeat(
            reply, self.model.checked_heartbeat(name, CONSUMERS[name], epoch, owned, None, self.new_targets)
        )

    def compare_heartbeat(self, reply: Any, expected: Any) -> None:
        if isinstance(reply, str) or isinstance(expected, str):
            assert reply == expected
        else:
            assert reply.member_epoch == expected[0]

    @rule(name=consumers, stays_static=st.booleans())
    def consumer_leaves(self, name: str, stays_static: bool) -> None:
        instance = CONSUMERS[name]
        is_static_leave = stays_static and instance is not None
        member = self.model.members.get(name)
        if is_static_leave and member is not None and member.classic:
            return
        reply = self.rig.beat(name, -2 if is_static_leave else -1, instance_id=instance)
        self.model.wait(0)
        error = self.model.leave_static(name, instance) if is_static_leave else self.model.leave(name, instance)
        assert (reply if isinstance(reply, str) else None) == error

    # ---- the classic protocol ---------------------------------------------------------------------------------------

    @rule(name=classics, topics=subscriptions, keeps=st.booleans(), without_id=rarely)
    def classic_joins(self, name: str, topics: tuple[str, ...], keeps: bool, without_id: bool) -> None:
        client = self.clients[name]
        member_id = "" if without_id else client.member_id
        owned = client.partitions if keeps and not without_id else frozenset()
        subscription = metadata(topics, by_topic(owned))
        self.model.subscriptions[subscription] = (frozenset(topics), frozenset(owned))
        got = self.rig.join(
            member_id,
            protocols={"range": subscription},
            instance=client.instance,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        request = {
            "id": member_id,
            "instance": client.instance,
            "protocols": [("range", subscription)],
            "type": "consumer",
            "session": SESSION_MS,
            "rebalance": REBALANCE_MS,
            "version": 9,
            "client": "c",
        }
        expected = self.model.classic_join(self.rig.waiters, request, self.new_targets)
        self.compare(got, expected)
        client.waiter = self.rig.waiters if isinstance(got, int) else None
        self.on_join_response(client, plain(got))

    def on_join_response(self, client: Client, response: Any) -> None:
        if isinstance(response, tuple) and response[0] in {"NONE", "MEMBER_ID_REQUIRED"}:
            client.member_id = response[1]
            client.generation = response[2] if response[0] == "NONE" else -1
        elif response == "UNKNOWN_MEMBER_ID" or (isinstance(response, tuple) and response[0] == "UNKNOWN_MEMBER_ID"):
            client.member_id, client.partitions = "", frozenset()

    @rule(name=classics)
    def classic_receives(self, name: str) -> None:
        client = self.clients[name]
        if client.waiter in self.rig.responses:
            response = plain(self.rig.responses[client.waiter])
            client.waiter = None
            if isinstance(response[1], frozenset):
                client.partitions = response[1] if response[0] == "NONE" else client.partitions
            else:
                self.on_join_response(client, response)

    @rule(name=classics, change=changes)
    def classic_syncs(self, name: str, change: int) -> None:
        client = self.clients[name]
        generation = client.generation + change
        assignments_by_member: dict[str, frozenset[Partition]] = {}
        if self.model.kind == "classic" and self.model.classic.leader == client.member_id:
            assignments_by_member = self.assignment_by_leader()
        got = self.rig.sync(
            client.member_id,
            generation,
            {
                member_id: encode_assignment(by_topic(assignments))
                for member_id, assignments in assignments_by_member.items()
            },
            instance=client.instance,
        )
        expected = self.model.classic_sync(
            self.rig.waiters, client.member_id, client.instance, generation, assignments_by_member
        )
        self.compare(got, expected)
        client.waiter = self.rig.waiters if isinstance(got, int) else None
        response = plain(got)
        if isinstance(response, tuple) and response[0] == "NONE":
            client.partitions = response[1]

    def assignment_by_leader(self) -> dict[str, frozenset[Partition]]:
        """Assign partitions round-robin to the subscribers of their topics."""
        members = self.model.classic.members
        assignments: dict[str, set[Partition]] = {member["id"]: set() for member in members}
        for topic, count in self.model.topics.items():
            subscribers = [member["id"] for member in members if topic in self.model.metadata_of(member)[0]]
            for number in range(count):
                if subscribers:
                    assignments[subscribers[number % len(subscribers)]].add((topic, number))
        return {member_id: frozenset(parts) for member_id, parts in assignments.items()}

    @rule(name=classics, change=changes)
    def classic_heartbeats(self, name: str, change: int) -> None:
        client = self.clients[name]
        generation = client.generation + change
        got = self.rig.heartbeat(client.member_id, generation, instance=client.instance)
        assert got == self.model.classic_heartbeat(client.member_id, client.instance, generation)

    @rule(name=classics, by_instance=st.booleans())
    def classic_leaves(self, name: str, by_instance: bool) -> None:
        client = self.clients[name]
        member_id = "" if by_instance and client.instance else client.member_id
        (got,) = self.rig.leave((member_id, client.instance))
        assert got == self.model.classic_leave(member_id, client.instance)

    # ---- topics, time and failures ----------------------------------------------------------------------------------

    @rule(topic=st.sampled_from(TOPICS))
    def partitions_are_added(self, topic: str) -> None:
        if self.model.topics[topic] < 4:
            self.model.topics[topic] += 1
            self.rig.topics.make(topic, self.model.topics[topic])

    @rule(ms=st.sampled_from(WAITS_MS))
    def time_passes(self, ms: int) -> None:
        self.rig.wait(ms)
        self.model.wait(ms)

    @rule(really=rarely)
    def crash(self, really: bool) -> None:
        if really:
            self.rig.crash()
            self.model.crash()
            for client in self.clients.values():
                client.waiter = None

    # ---- invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def core_matches_model(self) -> None:
        group = self.rig.core.state.groups.get(GROUP)
        assert ("none" if group is None else group.kind.value) == self.model.kind
        if self.kinds[-1:] != [self.model.kind]:
            self.kinds.append(self.model.kind)
        if isinstance(group, ClassicGroup):
            self.compare_classic(group)
        elif isinstance(group, ConsumerGroup):
            self.compare_consumer(group)

    def compare_classic(self, group: ClassicGroup) -> None:
        model = self.model.classic
        assert (group.state_name, group.generation) == (model.state, model.generation)
        assert {*group.members} == {member["id"] for member in model.members}
        for expected in model.members:
            member = group.members[expected["id"]]
            assert member.instance_id == expected["instance"]
            assert decode_partitions(member.assignment) == (expected["assignment"] or frozenset()), expected["id"]

    def compare_consumer(self, group: ConsumerGroup) -> None:
        assert (group.epoch, group.assignment_epoch) == (self.model.epoch, self.model.target_epoch)
        assert group.members.keys() == self.model.members.keys()
        for name, member in self.model.members.items():
            got = group.members[name]
            assert (got.epoch, got.uses_classic, got.instance_id) == (member.epoch, member.classic, member.instance)
            assert (epochs_of(got.assigned), epochs_of(got.revoking)) == (member.assigned, member.revoking)
            assert got.topics == tuple(sorted(member.topics))

    @invariant()
    def delayed_responses_match_model(self) -> None:
        for waiter, response in self.rig.responses.items():
            assert plain(response) == comparable(self.model.classic.responses[waiter])

    @invariant()
    def partitions_have_one_owner_and_replay_agrees(self) -> None:
        self.rig.check()


def test_heartbeat_to_a_classic_group_with_only_a_pending_member_id_is_refused() -> None:
    """The last member leaves while a new member has its id but has not joined.

    The group is PreparingRebalance, not Empty.
    """
    machine = ConversionMachine()
    machine.start(policy="downgrade")
    machine.classic_joins(keeps=False, name="X", topics=("t",), without_id=False)
    machine.classic_joins(keeps=False, name="X", topics=("t",), without_id=True)
    machine.classic_joins(keeps=False, name="P", topics=("t",), without_id=False)
    machine.time_passes(ms=0)
    machine.classic_leaves(by_instance=False, name="X")
    machine.classic_leaves(by_instance=False, name="P")
    machine.consumer_joins(name="A", subscription=("t",))
    machine.core_matches_model()


def test_group_conversions_match_the_model() -> None:
    run_machine(ConversionMachine, examples=50, steps=50)


def walk(rng: Random, steps: int) -> list[str]:
    """Run random operations, mostly valid ones, and return the sequence of group types."""
    machine = ConversionMachine()
    machine.start(policy=rng.choice(POLICIES))
    consumer, classic = list(CONSUMERS), list(CLASSICS)
    steps_of: list[tuple[int, Callable[[], object]]] = [
        (3, lambda: machine.consumer_joins(rng.choice(consumer), rng.choice(SUBSCRIPTIONS))),
        (12, lambda: machine.consumer_heartbeats(rng.choice(consumer), rng.choice(EPOCHS), rng.choice(OWNED))),
        (3, lambda: machine.consumer_leaves(rng.choice(consumer), rng.random() < 0.5)),
        (
            12,
            lambda: machine.classic_joins(
                rng.choice(classic), rng.choice(SUBSCRIPTIONS), rng.random() < 0.5, rng.random() < 0.1
            ),
        ),
        (12, lambda: machine.classic_receives(rng.choice(classic))),
        (12, lambda: machine.classic_syncs(rng.choice(classic), rng.choice(EPOCHS))),
        (8, lambda: machine.classic_heartbeats(rng.choice(classic), rng.choice(EPOCHS))),
        (1, lambda: machine.classic_leaves(rng.choice(classic), rng.random() < 0.5)),
        (1, lambda: machine.partitions_are_added(rng.choice(TOPICS))),
        (2, lambda: machine.time_passes(rng.choice(WAITS_MS))),
        (1, lambda: machine.crash(really=rng.random() < 0.5)),
    ]
    weights = [weight for weight, _ in steps_of]
    for _ in range(steps):
        rng.choices(steps_of, weights)[0][1]()
        machine.core_matches_model()
        machine.delayed_responses_match_model()
        machine.partitions_have_one_owner_and_replay_agrees()
    return machine.kinds


def test_long_walks_upgrade_and_downgrade_the_group() -> None:
    upgrades = downgrades = 0
    for seed in range(effort(40)):
        kinds = walk(Random(seed), steps=120)
        pairs = list(pairwise(kinds))
        upgrades += pairs.count(("classic", "consumer"))
        downgrades += pairs.count(("consumer", "classic"))
    assert upgrades > 20
    assert downgrades > 20
