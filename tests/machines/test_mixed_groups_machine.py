"""Groups with clients of both protocols, converted in both directions while the clients run (KIP-848).

The clients behave like real ones. No response is predicted. Two properties hold: the partitions that clients own never
overlap, and without further events the group becomes stable with all partitions assigned.
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
from tests.machines.partition_names import by_topic, partitions_of
from tests.support.classic_rig import GROUP
from tests.support.effort import effort, run_machine
from tests.support.modern_rig import ModernRig, assignment, encode_assignment, metadata

if TYPE_CHECKING:
    from collections.abc import Callable


Partition = tuple[str, int]
CONSUMERS = {"A": None, "B": None, "S": "i"}
CLASSICS = {"X": None, "Y": None, "P": "i"}
"""S and P share an instance id: P joins while S is absent."""
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
"""Rounds of one heartbeat or classic step per client: more than a rebalance of either protocol needs."""

rarely = st.sampled_from([False] * 5 + [True])


@dataclass
class Classic:
    """A client of the classic protocol.

    An eager one revokes all partitions when it joins; a cooperative one keeps them.
    """

    instance: str | None
    eager: bool
    topics: tuple[str, ...] = ("t-1",)
    step: str = "out"
    member_id: str = ""
    generation: int = -1
    waiter: int | None = None
    joined: JoinGroupResponse | None = None
    partitions: set[Partition] = field(default_factory=set)

    def drop(self) -> None:
        self.step, self.partitions, self.waiter, self.joined = "out", set(), None, None


class MixedMachine(RuleBasedStateMachine):
    """Clients of both protocols in one group."""

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
        # Without the field, a static member would keep its previous regular expression.
        self.rig.enter(name, *topics, regex=regex or "", instance=instance)

    @rule(name=st.sampled_from(list(CONSUMERS)), revokes=st.sampled_from([True, True, True, False]))
    def consumer_heartbeats(self, name: str, revokes: bool) -> None:
        """Send a heartbeat. Without `revokes` the client takes new partitions and revokes none."""
        if name not in self.rig.clients:
            return
        client = self.rig.clients[name]
        if revokes:
            reply = self.rig.follow(name)
        else:
            client.owned = by_topic(partitions_of(client.owned) | partitions_of(client.assigned))
            reply = self.rig.send_heartbeat(name, owned=client.owned)
        if isinstance(reply, str):
            del self.rig.clients[name]

    @rule(name=st.sampled_from(list(CONSUMERS)), stays_static=st.booleans())
    def consumer_leaves(self, name: str, stays_static: bool) -> None:
        if name in self.rig.clients:
            self.rig.send_leave(name, -2 if stays_static and CONSUMERS[name] else -1)
            del self.rig.clients[name]

    # ---- the classic protocol ---------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(list(CLASSICS)), topics=st.sampled_from([("t-1",), ("t-1", "u"), ("t-2", "u")]))
    def classic_starts(self, name: str, topics: tuple[str, ...]) -> None:
        client = self.classics[name]
        if client.step == "out" and not (client.instance and "S" in self.rig.clients):
            client.topics, client.member_id = topics, ""
            self.classic_joins(name)

    @rule(name=st.sampled_from(list(CLASSICS)))
    def classic_continues(self, name: str) -> None:
        step = self.classics[name].step
        steps = {
            "stable": self.classic_heartbeats,
            "joining": self.classic_receives,
            "joined": self.classic_syncs,
            "syncing": self.classic_receives,
            "again": self.classic_joins,
        }
        if step in steps:
            steps[step](name)

    def classic_joins(self, name: str) -> None:
        client = self.classics[name]
        if client.eager:
            client.partitions = set()
        fields: dict[str, Any] = {
            "protocols": {"range": metadata(client.topics, by_topic(client.partitions))},
            "instance": client.instance,
        }
        reply = self.rig.join(client.member_id, **fields)
        if isinstance(reply, JoinGroupResponse) and reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            reply = self.rig.join(reply.member_id, **fields)
        self.classic_response(client, reply, "joining")

    def classic_response(self, client: Classic, reply: Any, next_step: str) -> None:
        if isinstance(reply, int):
            client.waiter, client.step = reply, next_step
        elif isinstance(reply, JoinGroupResponse) and not reply.error_code:
            client.member_id, client.generation, client.joined = reply.member_id, reply.generation_id, reply
            client.step = "joined"
        elif isinstance(reply, SyncGroupResponse) and not reply.error_code:
            assigned = partitions_of(assignment(bytes(reply.assignment)))
            client.step = "again" if client.partitions - assigned else "stable"
            client.partitions = assigned
        elif self.error_of(reply) == "REBALANCE_IN_PROGRESS":
            client.step = "again"
        else:
            client.drop()

    @staticmethod
    def error_of(reply: Any) -> str:
        return reply if isinstance(reply, str) else ErrorCode(reply.error_code).name

    def classic_receives(self, name: str) -> None:
        client = self.classics[name]
        assert client.waiter is not None
        if client.waiter in self.rig.responses:
            self.classic_response(client, self.rig.responses[client.waiter], "joining")

    def classic_syncs(self, name: str) -> None:
        client = self.classics[name]
        assert client.joined is not None
        assigned = {}
        if client.joined.leader == client.member_id:
            assigned = {
                member_id: encode_assignment(by_topic(assignments))
                for member_id, assignments in self.assignment_by_leader(client.joined).items()
            }
        reply = self.rig.sync(client.member_id, client.generation, assigned, instance=client.instance)
        self.classic_response(client, reply, "syncing")

    def assignment_by_leader(self, joined: JoinGroupResponse) -> dict[str, set[Partition]]:
        """Assign owned partitions to their owners, and the others round-robin to the subscribers of the topic."""
        fields = {member.member_id: subscription_of(bytes(member.metadata)) for member in joined.members}
        assignments: dict[str, set[Partition]] = {member_id: set() for member_id in fields}
        claimed: set[Partition] = set()
        for member_id, subscription in fields.items():
            owned = {
                (owned_topic.topic, number)
                for owned_topic in subscription.owned_partitions
                for number in owned_topic.partitions
            }
            assignments[member_id] = {partition for partition in owned - claimed if partition[0] in subscription.topics}
            claimed |= owned
        for topic, info in self.rig.topics.topics.items():
            subscribers = [member_id for member_id, subscription in fields.items() if topic in subscription.topics]
            for number in range(info.partitions):
                if subscribers and (topic, number) not in claimed:
                    assignments[subscribers[number % len(subscribers)]].add((topic, number))
        return assignments

    def classic_heartbeats(self, name: str) -> None:
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

    # ---- topics, time and failures ----------------------------------------------------------------------------------

    @rule(topic=st.sampled_from(TOPICS))
    def partitions_are_added(self, topic: str) -> None:
        """Add a partition to a topic. The leader of a classic group rejoins to assign it."""
        count = self.rig.topics.topics[topic].partitions
        if count < 5:
            self.rig.topics.make(topic, count + 1)
        for client in self.classics.values():
            if client.step == "stable" and client.joined is not None and client.joined.leader == client.member_id:
                client.step = "again"

    @rule(ms=st.sampled_from([0, 500, REST_MS, 9_000, 30_000, SESSION_MS]))
    def time_passes(self, ms: int) -> None:
        """Advance the time. Clients whose session expired at the coordinator stop, too."""
        self.rig.wait(ms)
        group = self.rig.core.state.groups.get(GROUP)
        members = {} if group is None else getattr(group, "members")  # noqa: B009  both group types have members
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
                if client.step in {"joining", "syncing"}:
                    client.step = "again"

    @rule(really=rarely)
    def group_becomes_stable(self, really: bool) -> None:
        """Let all clients follow their protocol. Afterwards the group is stable, and all partitions are assigned."""
        if not really:
            return
        for _ in range(ROUNDS_MAX):
            for name in CONSUMERS:
                self.consumer_heartbeats(name, revokes=True)
            for name in CLASSICS:
                for _ in range(2):
                    self.classic_continues(name)
            self.time_passes(REST_MS)
        group = self.rig.core.state.groups.get(GROUP)
        if group is None or group.is_empty:
            return
        joined = [name for name, client in self.classics.items() if client.step != "out"]
        has_absent_static_member = isinstance(group, ConsumerGroup) and len(group.members) > len(joined) + len(
            self.rig.clients
        )
        if not has_absent_static_member:
            assert group.state_name == "Stable", (group, self.classics)
            assert self.owned() == self.wanted()

    # ---- invariants -------------------------------------------------------------------------------------------------

    def client_partitions(self) -> dict[str, set[Partition]]:
        assignments = {
            name: partitions_of(client.owned) | partitions_of(client.assigned)
            for name, client in self.rig.clients.items()
        }
        return assignments | {name: client.partitions for name, client in self.classics.items()}

    def owned(self) -> set[Partition]:
        return {partition for partitions in self.client_partitions().values() for partition in partitions}

    def wanted(self) -> set[Partition]:
        topics = {topic for client in self.classics.values() if client.step != "out" for topic in client.topics}
        for client in self.rig.clients.values():
            topics |= {*client.topics} | ({"t-1", "t-2"} if client.regex else set())
        return {(t, n) for t in topics for n in range(self.rig.topics.topics[t].partitions)}

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owners: dict[Partition, str] = {}
        for name, partitions in self.client_partitions().items():
            for partition in partitions:
                assert owners.setdefault(partition, name) == name, (partition, owners[partition], name)

    @invariant()
    def replay_matches_memory(self) -> None:
        self.rig.check()


def test_partitions_have_one_owner_in_mixed_groups() -> None:
    run_machine(MixedMachine, examples=100, steps=50)


def walk(rng: Random, steps: int) -> list[str]:
    """Run random operations and return the sequence of group types."""
    machine = MixedMachine()
    machine.start(policy=rng.choice(["bidirectional"] * 4 + ["upgrade"]), eager=rng.random() < 0.5)
    consumers, classics = list(CONSUMERS), list(CLASSICS)
    steps_of: list[tuple[int, Callable[[], object]]] = [
        (3, lambda: machine.consumer_joins(rng.choice(consumers), rng.choice(SUBSCRIPTIONS))),
        (8, lambda: machine.consumer_heartbeats(rng.choice(consumers), rng.random() < 0.8)),
        (2, lambda: machine.consumer_leaves(rng.choice(consumers), rng.random() < 0.5)),
        (4, lambda: machine.classic_starts(rng.choice(classics), rng.choice([("t-1",), ("t-1", "u"), ("t-2", "u")]))),
        (20, lambda: machine.classic_continues(rng.choice(classics))),
        (1, lambda: machine.classic_leaves(rng.choice(classics), really=rng.random() < 0.5)),
        (1, lambda: machine.partitions_are_added(rng.choice(TOPICS))),
        (4, lambda: machine.time_passes(rng.choice([0, 500, 500, REST_MS, 9_000, SESSION_MS]))),
        (1, lambda: machine.crash(really=rng.random() < 0.3)),
        (1, lambda: machine.group_becomes_stable(really=rng.random() < 0.3)),
    ]
    weights = [weight for weight, _ in steps_of]
    kinds: list[str] = []
    for _ in range(steps):
        rng.choices(steps_of, weights)[0][1]()
        machine.no_partition_has_two_owners()
        machine.replay_matches_memory()
        group = machine.rig.core.state.groups.get(GROUP)
        if group is not None and not group.is_empty and kinds[-1:] != [group.kind.value]:
            kinds.append(group.kind.value)
    return kinds


def test_long_walks_upgrade_and_downgrade_the_group() -> None:
    upgrades = downgrades = 0
    for seed in range(effort(60)):
        kinds = walk(Random(seed), steps=150)
        pairs = list(pairwise(kinds))
        upgrades += pairs.count(("classic", "consumer"))
        downgrades += pairs.count(("consumer", "classic"))
    assert upgrades > 20
    assert downgrades > 20
