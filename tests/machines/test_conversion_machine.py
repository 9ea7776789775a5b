"""The core against the model of mixed_model.py: members of both protocols in one group, which is converted under them, request by request.

`test_mixed_groups_machine.py` has clients that behave as real ones do, and asks for less.
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
from tests.machines.partition_names import by_topic, new_targets, since
from tests.support.classic_rig import GROUP, NOW_MS
from tests.support.effort import effort, run_machine
from tests.support.modern_rig import ModernRig, assignment, metadata, written

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.machines.modern_model import Part

CONSUMERS = {"A": None, "B": None, "S": "i", "T": "i"}
CLASSICS = {"X": None, "Y": None, "P": "i", "Q": "i"}
TOPICS = ("t", "u")
SUBSCRIPTIONS = [("t",), ("t",), ("t", "u"), ("u",)]
OWNED = [*["as told"] * 5, "everything", "everything", "does not say"]
EPOCHS = [*[0] * 8, -1, 1]
SESSION_MS = 10_000
WAITS_MS = [0, 1, 3_000, 9_999, SESSION_MS, 45_000, REBALANCE_MS]
POLICIES = ["bidirectional", "bidirectional", "bidirectional", "upgrade", "downgrade"]

rarely = st.sampled_from([False] * 5 + [True])
consumers, classics = st.sampled_from(list(CONSUMERS)), st.sampled_from(list(CLASSICS))
subscriptions, changes = st.sampled_from(SUBSCRIPTIONS), st.sampled_from(EPOCHS)


def parts_of(data: bytes) -> frozenset[Part]:
    if not data:
        return frozenset()
    return frozenset((topic, number) for topic, numbers in assignment(data).items() for number in numbers)


def plain(reply: Any) -> Any:
    """A reply of the core in the words of the model."""
    if isinstance(reply, JoinGroupResponse):
        error = ErrorCode(reply.error_code).name
        return ("NONE", reply.member_id, reply.generation_id) if error == "NONE" else (error, reply.member_id)
    if isinstance(reply, SyncGroupResponse):
        return (ErrorCode(reply.error_code).name, parts_of(bytes(reply.assignment)))
    return reply


def told(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the model says, without what is not compared here."""
    return tuple(frozenset() if each == b"" else each for each in answer[:3])


@dataclass
class Client:
    """A client of the classic protocol, as far as it knows."""

    instance: str | None
    member_id: str = ""
    generation: int = -1
    waiter: int | None = None
    held: frozenset[Part] = field(default_factory=frozenset)


class ConversionMachine(RuleBasedStateMachine):
    @initialize(policy=st.sampled_from(POLICIES))
    def start(self, policy: str) -> None:
        self.rig = ModernRig(consumer_migration_policy=policy, group_initial_rebalance_delay_ms=0)
        self.model = Model(policy, NOW_MS)
        self.clients = {name: Client(instance) for name, instance in CLASSICS.items()}
        self.kinds: list[str] = []
        for topic in TOPICS:
            self.rig.topics.make(topic, 2)
            self.model.topics[topic] = 2

    # ---- from the core ----------------------------------------------------------------------------------------------

    def new_targets(self) -> dict[str, set[Part]]:
        members = self.model.members
        return new_targets(self.rig.modern, self.model.wanted(), members.keys(), lambda name: members[name].topics)

    def compare(self, got: Any, expected: tuple[Any, ...] | None) -> None:
        """`expected` None: it waits, unless it was answered at once."""
        if expected is None:
            expected = self.model.classic.told.get(self.rig.waiters)
        if expected is None:
            assert got == self.rig.waiters
        elif isinstance(got, str):
            assert got == expected[0]
        else:
            assert plain(got) == told(expected)

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
        self.model.wait(0)  # what is due strikes before a heartbeat
        expected = self.model.join(name, frozenset(subscription), instance, self.new_targets)
        self.told_consumer(reply, expected)

    @rule(name=consumers, change=changes, owns=st.sampled_from(OWNED))
    def consumer_beats(self, name: str, change: int, owns: str) -> None:
        member = self.model.members.get(name)
        epoch = 1 if member is None else member.epoch + change
        if epoch <= 0:
            return
        says = {"does not say": None, "everything": member.all() if member else set()}
        owned = says.get(owns, set(member.has) if member else set())
        reply = self.rig.beat(
            name, epoch, owned=None if owned is None else by_topic(owned), instance_id=CONSUMERS[name]
        )
        self.model.wait(0)
        self.told_consumer(reply, self.model.beat(name, CONSUMERS[name], epoch, owned, None, self.new_targets))

    def told_consumer(self, reply: Any, expected: Any) -> None:
        if isinstance(reply, str) or isinstance(expected, str):
            assert reply == expected
        else:
            assert reply.member_epoch == expected[0]

    @rule(name=consumers, for_a_while=st.booleans())
    def consumer_leaves(self, name: str, for_a_while: bool) -> None:
        instance = CONSUMERS[name]
        away = for_a_while and instance is not None
        member = self.model.members.get(name)
        if away and member is not None and member.classic:
            return
        reply = self.rig.beat(name, -2 if away else -1, instance_id=instance)
        self.model.wait(0)
        refused = self.model.away(name, instance) if away else self.model.leave(name, instance)
        assert (reply if isinstance(reply, str) else None) == refused

    # ---- the classic protocol ---------------------------------------------------------------------------------------

    @rule(name=classics, topics=subscriptions, keeps=st.booleans(), anew=rarely)
    def classic_joins(self, name: str, topics: tuple[str, ...], keeps: bool, anew: bool) -> None:
        client = self.clients[name]
        member_id = "" if anew else client.member_id
        owned = client.held if keeps and not anew else frozenset()
        said = metadata(topics, by_topic(owned))
        self.model.said[said] = (frozenset(topics), frozenset(owned))
        got = self.rig.join(
            member_id,
            protocols={"range": said},
            instance=client.instance,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        ask = {
            "id": member_id,
            "instance": client.instance,
            "protocols": [("range", said)],
            "type": "consumer",
            "session": SESSION_MS,
            "rebalance": REBALANCE_MS,
            "version": 9,
            "client": "c",
        }
        expected = self.model.classic_join(self.rig.waiters, ask, self.new_targets)
        self.compare(got, expected)
        client.waiter = self.rig.waiters if isinstance(got, int) else None
        self.hears_of_join(client, plain(got))

    def hears_of_join(self, client: Client, answer: Any) -> None:
        if isinstance(answer, tuple) and answer[0] in {"NONE", "MEMBER_ID_REQUIRED"}:
            client.member_id = answer[1]
            client.generation = answer[2] if answer[0] == "NONE" else -1
        elif answer == "UNKNOWN_MEMBER_ID" or (isinstance(answer, tuple) and answer[0] == "UNKNOWN_MEMBER_ID"):
            client.member_id, client.held = "", frozenset()

    @rule(name=classics)
    def classic_hears(self, name: str) -> None:
        client = self.clients[name]
        if client.waiter in self.rig.answers:
            answer = plain(self.rig.answers[client.waiter])
            client.waiter = None
            if isinstance(answer[1], frozenset):
                client.held = answer[1] if answer[0] == "NONE" else client.held
            else:
                self.hears_of_join(client, answer)

    @rule(name=classics, change=changes)
    def classic_syncs(self, name: str, change: int) -> None:
        client = self.clients[name]
        generation = client.generation + change
        given: dict[str, frozenset[Part]] = {}
        if self.model.kind == "classic" and self.model.classic.leader == client.member_id:
            given = self.shared_out()
        got = self.rig.sync(
            client.member_id,
            generation,
            {who: written(by_topic(found)) for who, found in given.items()},
            instance=client.instance,
        )
        expected = self.model.classic_sync(self.rig.waiters, client.member_id, client.instance, generation, given)
        self.compare(got, expected)
        client.waiter = self.rig.waiters if isinstance(got, int) else None
        answer = plain(got)
        if isinstance(answer, tuple) and answer[0] == "NONE":
            client.held = answer[1]

    def shared_out(self) -> dict[str, frozenset[Part]]:
        """In turn among those who subscribe to it."""
        members = self.model.classic.members
        found: dict[str, set[Part]] = {one["id"]: set() for one in members}
        for topic, count in self.model.topics.items():
            subscribers = [one["id"] for one in members if topic in self.model.metadata_of(one)[0]]
            for number in range(count):
                if subscribers:
                    found[subscribers[number % len(subscribers)]].add((topic, number))
        return {who: frozenset(parts) for who, parts in found.items()}

    @rule(name=classics, change=changes)
    def classic_beats(self, name: str, change: int) -> None:
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

    # ---- the world --------------------------------------------------------------------------------------------------

    @rule(topic=st.sampled_from(TOPICS))
    def a_topic_grows(self, topic: str) -> None:
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

    # ---- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def the_core_says_what_the_model_says(self) -> None:
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
        assert {*group.members} == {one["id"] for one in model.members}
        for one in model.members:
            member = group.members[one["id"]]
            assert member.instance_id == one["instance"]
            assert parts_of(member.assignment) == (one["assignment"] or frozenset()), one["id"]

    def compare_consumer(self, group: ConsumerGroup) -> None:
        assert (group.epoch, group.assignment_epoch) == (self.model.epoch, self.model.target_epoch)
        assert group.members.keys() == self.model.members.keys()
        for name, member in self.model.members.items():
            got = group.members[name]
            assert (got.epoch, got.uses_classic, got.instance_id) == (member.epoch, member.classic, member.instance)
            assert (since(got.assigned), since(got.revoking)) == (member.has, member.giving)
            assert got.topics == tuple(sorted(member.topics))

    @invariant()
    def who_waited_was_told_what_the_model_says(self) -> None:
        for waiter, answer in self.rig.answers.items():
            assert plain(answer) == told(self.model.classic.told[waiter])

    @invariant()
    def nothing_is_owned_twice_and_the_log_says_the_same(self) -> None:
        self.rig.check()


def test_the_core_behaves_like_the_model() -> None:
    run_machine(ConversionMachine, examples=50, steps=50)


def walk(rng: Random, steps: int) -> list[str]:
    """The kinds of group that were met, in turn; clients mostly do what they should."""
    machine = ConversionMachine()
    machine.start(policy=rng.choice(POLICIES))
    consumer, classic = list(CONSUMERS), list(CLASSICS)
    steps_of: list[tuple[int, Callable[[], object]]] = [
        (3, lambda: machine.consumer_joins(rng.choice(consumer), rng.choice(SUBSCRIPTIONS))),
        (12, lambda: machine.consumer_beats(rng.choice(consumer), rng.choice(EPOCHS), rng.choice(OWNED))),
        (3, lambda: machine.consumer_leaves(rng.choice(consumer), rng.random() < 0.5)),
        (
            12,
            lambda: machine.classic_joins(
                rng.choice(classic), rng.choice(SUBSCRIPTIONS), rng.random() < 0.5, rng.random() < 0.1
            ),
        ),
        (12, lambda: machine.classic_hears(rng.choice(classic))),
        (12, lambda: machine.classic_syncs(rng.choice(classic), rng.choice(EPOCHS))),
        (8, lambda: machine.classic_beats(rng.choice(classic), rng.choice(EPOCHS))),
        (1, lambda: machine.classic_leaves(rng.choice(classic), rng.random() < 0.5)),
        (1, lambda: machine.a_topic_grows(rng.choice(TOPICS))),
        (2, lambda: machine.time_passes(rng.choice(WAITS_MS))),
        (1, lambda: machine.crash(really=rng.random() < 0.5)),
    ]
    weights = [weight for weight, _ in steps_of]
    for _ in range(steps):
        rng.choices(steps_of, weights)[0][1]()
        machine.the_core_says_what_the_model_says()
        machine.who_waited_was_told_what_the_model_says()
        machine.nothing_is_owned_twice_and_the_log_says_the_same()
    return machine.kinds


def test_long_walks_between_the_protocols() -> None:
    upgrades = downgrades = 0
    for seed in range(effort(40)):
        kinds = walk(Random(seed), steps=120)
        pairs = list(pairwise(kinds))
        upgrades += pairs.count(("classic", "consumer"))
        downgrades += pairs.count(("consumer", "classic"))
    assert upgrades > 20
    assert downgrades > 20
