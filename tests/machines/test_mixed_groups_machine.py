"""Clients of both protocols in one group, which goes over from one to the other and back under them.

Nothing is predicted here. The clients behave as real ones do, and what they believe to own must never overlap, whatever
they, the topics and the coordinator are up to; left alone, they come to rest with everything shared out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.protocol.consumer_protocol import subscription_of
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.join_group import JoinGroupResponse
from odradek.protocol.messages.sync_group import SyncGroupResponse
from tests.machines.partition_names import by_topic, parts
from tests.support.classic_rig import GROUP
from tests.support.effort import effort, run_machine
from tests.support.modern_rig import ModernRig, assignment, metadata, written

if TYPE_CHECKING:
    from collections.abc import Callable


Part = tuple[str, int]
CONSUMERS = {"A": None, "B": None, "S": "i"}
CLASSICS = {"X": None, "Y": None, "P": "i"}
"""S and P share an instance id: P comes when S has left for a while."""
TOPICS = ["t-1", "t-2", "u"]
SUBSCRIPTIONS: list[tuple[tuple[str, ...], str | None]] = [
    (("t-1",), None),
    (("t-1", "t-2"), None),
    (("u", "t-1"), None),
    ((), "t-.*"),
    (("u",), "t-.*"),
]
SESSION_MS = 45_000
REST_MS = 3_000
ROUNDS_MAX = 24
"""Of a heartbeat, or a step of the classic protocol, by each: more than enough for a rebalance of either kind."""

rarely = st.sampled_from([False] * 5 + [True])


@dataclass
class Classic:
    """A client of the classic protocol. An eager one gives everything up when it joins, the other keeps what it has."""

    instance: str | None
    eager: bool
    topics: tuple[str, ...] = ("t-1",)
    step: str = "out"
    member_id: str = ""
    generation: int = -1
    waiter: int | None = None
    joined: JoinGroupResponse | None = None
    held: set[Part] = field(default_factory=set)

    def drop(self) -> None:
        self.step, self.held, self.waiter, self.joined = "out", set(), None, None


class MixedMachine(RuleBasedStateMachine):
    @initialize(policy=st.sampled_from(["bidirectional", "bidirectional", "upgrade"]), eager=st.booleans())
    def start(self, policy: str, eager: bool) -> None:
        self.rig = ModernRig(
            consumer_migration_policy=policy, group_initial_rebalance_delay_ms=0, consumer_session_timeout_ms=SESSION_MS
        )
        for topic in TOPICS:
            self.rig.topics.make(topic, 2)
        self.classics = {name: Classic(instance, eager=(name == "X") == eager) for name, instance in CLASSICS.items()}
        self.epoch = 0

    # ---- the consumer protocol --------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(list(CONSUMERS)), subscription=st.sampled_from(SUBSCRIPTIONS))
    def consumer_joins(self, name: str, subscription: tuple[tuple[str, ...], str | None]) -> None:
        instance = CONSUMERS[name]
        if name in self.rig.clients or (instance and self.classics["P"].step != "out"):
            return
        topics, regex = subscription
        # An instance that is silent about expressions would keep the one it had.
        self.rig.enter(name, *topics, regex=regex or "", instance=instance)

    @rule(name=st.sampled_from(list(CONSUMERS)), obeys=st.sampled_from([True, True, True, False]))
    def consumer_beats(self, name: str, obeys: bool) -> None:
        """A stubborn one takes what is new, and gives nothing up."""
        if name not in self.rig.clients:
            return
        client = self.rig.clients[name]
        if obeys:
            reply = self.rig.follow(name)
        else:
            client.owned = by_topic(parts(client.owned) | parts(client.assigned))
            reply = self.rig.tell(name, owned=client.owned)
        if isinstance(reply, str):
            del self.rig.clients[name]

    @rule(name=st.sampled_from(list(CONSUMERS)), for_a_while=st.booleans())
    def consumer_leaves(self, name: str, for_a_while: bool) -> None:
        if name in self.rig.clients:
            self.rig.quit(name, -2 if for_a_while and CONSUMERS[name] else -1)
            del self.rig.clients[name]

    # ---- the classic protocol ---------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(list(CLASSICS)), topics=st.sampled_from([("t-1",), ("t-1", "u"), ("t-2", "u")]))
    def classic_begins(self, name: str, topics: tuple[str, ...]) -> None:
        client = self.classics[name]
        if client.step == "out" and not (client.instance and "S" in self.rig.clients):
            client.topics, client.member_id = topics, ""
            self.classic_joins(name)

    @rule(name=st.sampled_from(list(CLASSICS)))
    def classic_goes_on(self, name: str) -> None:
        step = self.classics[name].step
        steps = {
            "stable": self.classic_beats,
            "waits to join": self.classic_hears,
            "joined": self.classic_syncs,
            "waits to sync": self.classic_hears,
            "again": self.classic_joins,
        }
        if step in steps:
            steps[step](name)

    def classic_joins(self, name: str) -> None:
        client = self.classics[name]
        if client.eager:
            client.held = set()
        said: dict[str, Any] = {
            "protocols": {"range": metadata(client.topics, by_topic(client.held))},
            "instance": client.instance,
        }
        reply = self.rig.join(client.member_id, **said)
        if isinstance(reply, JoinGroupResponse) and reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            reply = self.rig.join(reply.member_id, **said)
        self.classic_told(client, reply, "waits to join")

    def classic_told(self, client: Classic, reply: Any, waits: str) -> None:
        if isinstance(reply, int):
            client.waiter, client.step = reply, waits
        elif isinstance(reply, JoinGroupResponse) and not reply.error_code:
            client.member_id, client.generation, client.joined = reply.member_id, reply.generation_id, reply
            client.step = "joined"
        elif isinstance(reply, SyncGroupResponse) and not reply.error_code:
            assigned = parts(assignment(bytes(reply.assignment)))
            client.step = "again" if client.held - assigned else "stable"
            client.held = assigned
        elif self.error_of(reply) == "REBALANCE_IN_PROGRESS":
            client.step = "again"
        else:
            client.drop()

    @staticmethod
    def error_of(reply: Any) -> str:
        return reply if isinstance(reply, str) else ErrorCode(reply.error_code).name

    def classic_hears(self, name: str) -> None:
        client = self.classics[name]
        assert client.waiter is not None
        if client.waiter in self.rig.answers:
            self.classic_told(client, self.rig.answers[client.waiter], "waits")

    def classic_syncs(self, name: str) -> None:
        client = self.classics[name]
        assert client.joined is not None
        assigned = {}
        if client.joined.leader == client.member_id:
            assigned = {who: written(by_topic(found)) for who, found in self.shared_out(client.joined).items()}
        reply = self.rig.sync(client.member_id, client.generation, assigned, instance=client.instance)
        self.classic_told(client, reply, "waits to sync")

    def shared_out(self, joined: JoinGroupResponse) -> dict[str, set[Part]]:
        """What members say they own stays theirs; the rest goes round among its subscribers."""
        said = {member.member_id: subscription_of(bytes(member.metadata)) for member in joined.members}
        found: dict[str, set[Part]] = {who: set() for who in said}
        taken: set[Part] = set()
        for who, subscription in said.items():
            owned = {(each.topic, number) for each in subscription.owned_partitions for number in each.partitions}
            found[who] = {part for part in owned - taken if part[0] in subscription.topics}
            taken |= owned
        for topic, info in self.rig.topics.topics.items():
            subscribers = [who for who, subscription in said.items() if topic in subscription.topics]
            for number in range(info.partitions):
                if subscribers and (topic, number) not in taken:
                    found[subscribers[number % len(subscribers)]].add((topic, number))
        return found

    def classic_beats(self, name: str) -> None:
        client = self.classics[name]
        error = self.rig.heartbeat(client.member_id, client.generation, instance=client.instance)
        if error == "REBALANCE_IN_PROGRESS":
            client.step = "again"
        elif error != "NONE":
            client.drop()

    @rule(name=st.sampled_from(list(CLASSICS)), really=rarely)
    def classic_leaves(self, name: str, really: bool) -> None:
        client = self.classics[name]
        if really and client.member_id and client.step != "out":
            self.rig.leave((client.member_id, client.instance))
            client.drop()

    # ---- the world --------------------------------------------------------------------------------------------------

    @rule(topic=st.sampled_from(TOPICS))
    def a_topic_grows(self, topic: str) -> None:
        """The leader of a classic group looks after that itself."""
        count = self.rig.topics.topics[topic].partitions
        if count < 5:
            self.rig.topics.make(topic, count + 1)
        for client in self.classics.values():
            if client.step == "stable" and client.joined is not None and client.joined.leader == client.member_id:
                client.step = "again"

    @rule(ms=st.sampled_from([0, 500, REST_MS, 9_000, 30_000, SESSION_MS]))
    def time_passes(self, ms: int) -> None:
        """Clients whose session is over at the coordinator know that it is, too: they have not been answered."""
        self.rig.wait(ms)
        group = self.rig.core.state.groups.get(GROUP)
        members = {} if group is None else getattr(group, "members")  # noqa: B009  both kinds have them
        for name in [name for name, client in self.rig.clients.items() if client.member_id not in members]:
            del self.rig.clients[name]
        for client in self.classics.values():
            if client.member_id not in members:
                client.drop()

    @rule(really=rarely)
    def crash(self, really: bool) -> None:
        if really:
            self.rig.crash()
            for client in self.classics.values():
                if client.step in {"waits to join", "waits to sync"}:
                    client.step = "again"

    @rule(really=rarely)
    def all_is_quiet(self, really: bool) -> None:
        """Everybody follows the protocol for a while: then all is shared out among those who are there."""
        if not really:
            return
        for _ in range(ROUNDS_MAX):
            for name in CONSUMERS:
                self.consumer_beats(name, obeys=True)
            for name in CLASSICS:
                for _ in range(2):
                    self.classic_goes_on(name)
            self.time_passes(REST_MS)
        group = self.rig.core.state.groups.get(GROUP)
        if group is None or group.is_empty:
            return
        there = [name for name, client in self.classics.items() if client.step != "out"]
        away = isinstance(group, ConsumerGroup) and len(group.members) > len(there) + len(self.rig.clients)
        if not away:
            assert group.state_name == "Stable", (group, self.classics)
            assert self.owned() == self.wanted()

    # ---- what always holds ------------------------------------------------------------------------------------------

    def beliefs(self) -> dict[str, set[Part]]:
        found = {name: parts(client.owned) | parts(client.assigned) for name, client in self.rig.clients.items()}
        return found | {name: client.held for name, client in self.classics.items()}

    def owned(self) -> set[Part]:
        return {part for held in self.beliefs().values() for part in held}

    def wanted(self) -> set[Part]:
        topics = {topic for client in self.classics.values() if client.step != "out" for topic in client.topics}
        for client in self.rig.clients.values():
            topics |= {*client.topics} | ({"t-1", "t-2"} if client.regex else set())
        return {(t, n) for t in topics for n in range(self.rig.topics.topics[t].partitions)}

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owners: dict[Part, str] = {}
        for name, held in self.beliefs().items():
            for part in held:
                assert owners.setdefault(part, name) == name, (part, owners[part], name)

    @invariant()
    def the_log_says_what_the_memory_says(self) -> None:
        self.rig.check()


def test_both_protocols_in_one_group() -> None:
    run_machine(MixedMachine, examples=100, steps=50)


def walk(rng: Random, steps: int) -> list[str]:
    """The kinds of group that were met, in turn."""
    machine = MixedMachine()
    machine.start(policy=rng.choice(["bidirectional"] * 4 + ["upgrade"]), eager=rng.random() < 0.5)
    consumers, classics = list(CONSUMERS), list(CLASSICS)
    steps_of: list[tuple[int, Callable[[], object]]] = [
        (3, lambda: machine.consumer_joins(rng.choice(consumers), rng.choice(SUBSCRIPTIONS))),
        (8, lambda: machine.consumer_beats(rng.choice(consumers), rng.random() < 0.8)),
        (2, lambda: machine.consumer_leaves(rng.choice(consumers), rng.random() < 0.5)),
        (4, lambda: machine.classic_begins(rng.choice(classics), rng.choice([("t-1",), ("t-1", "u"), ("t-2", "u")]))),
        (20, lambda: machine.classic_goes_on(rng.choice(classics))),
        (1, lambda: machine.classic_leaves(rng.choice(classics), really=rng.random() < 0.5)),
        (1, lambda: machine.a_topic_grows(rng.choice(TOPICS))),
        (4, lambda: machine.time_passes(rng.choice([0, 500, 500, REST_MS, 9_000, SESSION_MS]))),
        (1, lambda: machine.crash(really=rng.random() < 0.3)),
        (1, lambda: machine.all_is_quiet(really=rng.random() < 0.3)),
    ]
    weights = [weight for weight, _ in steps_of]
    kinds: list[str] = []
    for _ in range(steps):
        rng.choices(steps_of, weights)[0][1]()
        machine.no_partition_has_two_owners()
        machine.the_log_says_what_the_memory_says()
        group = machine.rig.core.state.groups.get(GROUP)
        if group is not None and not group.is_empty and kinds[-1:] != [group.kind.value]:
            kinds.append(group.kind.value)
    return kinds


def test_long_walks_between_the_protocols() -> None:
    upgrades = downgrades = 0
    for seed in range(effort(60)):
        kinds = walk(Random(seed), steps=150)
        pairs = list(pairwise(kinds))
        upgrades += pairs.count(("classic", "consumer"))
        downgrades += pairs.count(("consumer", "classic"))
    assert upgrades > 20
    assert downgrades > 20
