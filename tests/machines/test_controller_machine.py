"""The controller against a model of what replicas hold: whatever happens, nothing acknowledged is given up silently."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from odradek.cluster.controller import commands as c
from odradek.cluster.controller.core import Controller
from odradek.cluster.controller.election import Election
from odradek.cluster.controller.messages.brokers import BrokerHeartbeat
from odradek.cluster.controller.messages.partitions import NewReplicas, PartitionIsr
from odradek.cluster.controller.messages.settings import ConfigChange, ConfigOperation
from odradek.cluster.controller.messages.topics import NewTopic
from odradek.cluster.controller.state import ControllerConfig, ControllerState
from odradek.cluster.metadata.image import RESOURCE_TOPIC
from odradek.protocol.errors import ErrorCode, Refusal
from tests.machines.replica_model import NO_LEADER, Replicas, check_shape
from tests.support.effort import run_machine
from tests.support.raft_memory import CLUSTER_ID, ControllerRig, PlainConfigs, registration

if TYPE_CHECKING:
    from odradek.cluster.metadata.image import BrokerImage, PartitionImage

BROKERS = (1, 2, 3, 4)
brokers = st.sampled_from(BROKERS)
some = st.lists(brokers, min_size=1, max_size=4, unique=True)
rarely = st.sampled_from([False] * 4 + [True])
TOPICS = ("safe", "min1", "unclean")
topics = st.sampled_from(TOPICS)
MIN_ISR = {"safe": 2, "min1": 1, "unclean": 2}


class ControllerMachine(RuleBasedStateMachine):
    """Three topics of one partition each, four brokers. Brokers live or not; what they hold is the model's."""

    @initialize(elr=st.sampled_from([True, True, False]))
    def start(self, elr: bool) -> None:
        self.elr = elr
        self.rig = ControllerRig().with_brokers(*BROKERS, elr=elr)
        self.model = {name: Replicas(MIN_ISR[name]) for name in TOPICS}
        self.value = 0
        self.life = dict.fromkeys(BROKERS, 7)
        self.disk = {broker_id: (UUID(int=(1 << 100) + broker_id),) for broker_id in BROKERS}
        for number, name in enumerate(TOPICS):
            configs = [("min.insync.replicas", str(MIN_ISR[name]))]
            if name == "unclean":
                configs.append(("unclean.leader.election.enable", "true"))
            replicas = tuple(BROKERS[(number + place) % 4] for place in range(3))
            self.rig.do(c.CreateTopics((NewTopic(name, assignments=((0, replicas),), configs=tuple(configs)),)))
        self.observe()

    # ---- the plain parts ------------------------------------------------------------------------------------------------

    def partition(self, name: str) -> PartitionImage:
        return self.rig.core.state.image.topics[name].partitions[0]

    def broker(self, broker_id: int) -> BrokerImage | None:
        return self.rig.core.state.image.brokers.get(broker_id)

    def observe(self) -> None:
        for name in TOPICS:
            self.model[name].follow(self.partition(name))

    def do(self, command: c.Command) -> Any:
        """The reply, or the code of the refusal."""
        try:
            reply = self.rig.do(command)
        except Refusal as refusal:
            return refusal.error
        self.observe()
        return reply

    # ---- what brokers do ------------------------------------------------------------------------------------------------

    @rule(name=topics)
    def write(self, name: str) -> None:
        if self.partition(name).leader != NO_LEADER:
            self.value += 1
            self.model[name].append(self.partition(name), self.value)

    @rule(name=topics, follower=brokers, length=st.integers(0, 3))
    def copy(self, name: str, follower: int, length: int) -> None:
        partition = self.partition(name)
        if partition.leader != NO_LEADER and follower in partition.replicas and follower != partition.leader:
            self.model[name].copy(partition, follower, length)

    @rule(name=topics, once_more=st.integers(0, 2))
    def serve(self, name: str, once_more: int) -> None:
        """A quiet time: everybody copies, joins the ISR, and some more is written, which not everybody has yet."""
        self.write(name)
        partition = self.partition(name)
        if partition.leader != NO_LEADER:
            for follower in partition.replicas:
                found = self.broker(follower)
                if follower != partition.leader and found is not None and found.is_active:
                    self.copy(name, follower, 1_000)
            self.expand(name)
            for _ in range(once_more):
                self.write(name)

    @rule()
    def heal(self) -> None:
        """Whoever is registered comes back."""
        for broker_id in BROKERS:
            self.beat(broker_id, fence=False, leave=False)

    @rule(name=topics)
    def expand(self, name: str) -> None:
        """A leader takes in who has caught up: the only thing that a broker does by its own knowledge."""
        partition = self.partition(name)
        broker = self.broker(partition.leader)
        if broker is None:
            return
        more = [r for r in partition.replicas if r not in partition.isr and self.model[name].caught_up(partition, r)]
        isr = tuple(r for r in (*partition.isr, *more) if (found := self.broker(r)) is not None and found.is_active)
        result = self.alter(name, isr, sender=partition.leader)
        assert result is ErrorCode.NONE or result is ErrorCode.NEW_LEADER_ELECTED

    @rule(name=topics, data=st.data())
    def shrink(self, name: str, data: st.DataObject) -> None:
        partition = self.partition(name)
        if partition.leader != NO_LEADER:
            out = data.draw(st.sampled_from(partition.isr))
            if out != partition.leader:
                left = tuple(r for r in partition.isr if r != out)
                assert self.alter(name, left, sender=partition.leader) is ErrorCode.NONE

    @rule(name=topics, isr=some, sender=brokers, late=st.integers(-1, 1), behind=st.integers(-1, 1))
    def ask_for_nonsense(self, name: str, isr: list[int], sender: int, late: int, behind: int) -> None:
        """From whoever, on whatever knowledge: only what a leader may say is heard, and that is refused here, too."""
        partition = self.partition(name)
        if sender == partition.leader and late == behind == 0:
            return
        before = len(self.rig.log)
        assert self.alter(name, tuple(isr), sender=sender, late=late, behind=behind) is not ErrorCode.NONE
        assert len(self.rig.log) == before

    def alter(self, name: str, isr: tuple[int, ...], *, sender: int, late: int = 0, behind: int = 0) -> ErrorCode:
        partition, broker = self.partition(name), self.broker(sender)
        if broker is None:
            return ErrorCode.BROKER_ID_NOT_REGISTERED
        members = tuple((r, found.epoch if (found := self.broker(r)) else -1) for r in isr)
        topic_id = self.rig.core.state.image.topics[name].topic_id
        wish = PartitionIsr(topic_id, 0, partition.leader_epoch + late, partition.partition_epoch + behind, members)
        results = self.do(c.AlterPartition(sender, broker.epoch, (wish,)))
        (result,) = results
        error: ErrorCode = result.error
        return error

    # ---- lives ----------------------------------------------------------------------------------------------------------

    @rule(broker_id=brokers, clean=st.booleans(), lost=rarely, data=st.data())
    def restart(self, broker_id: int, clean: bool, lost: bool, data: st.DataObject) -> None:
        """A stop of either kind, maybe with another disk, and the registration that follows."""
        before = self.broker(broker_id)
        self.life[broker_id] += 1
        if lost:
            self.disk[broker_id] = (UUID(int=(1 << 101) + self.life[broker_id] * 10 + broker_id),)
        previous = before.epoch if before is not None and clean else -1
        for name, model in self.model.items():
            if lost or not clean:
                partition = self.partition(name)
                alone = not partition.isr or partition.isr == (broker_id,)
                if not self.elr and alone and not lost:
                    model.excused.add(broker_id)
                kept = 0 if lost else data.draw(st.integers(0, len(model.log(broker_id))))
                model.lose(broker_id, kept)
        newcomer = replace(
            registration(broker_id, incarnation=self.life[broker_id], previous=previous),
            directories=self.disk[broker_id],
        )
        if self.do(c.RegisterBroker(newcomer, 0)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self.do(c.FenceBroker(broker_id))
            assert not isinstance(self.do(c.RegisterBroker(newcomer, 0)), ErrorCode)

    @rule(broker_id=brokers, fence=rarely, leave=rarely)
    def beat(self, broker_id: int, fence: bool, leave: bool) -> None:
        broker = self.broker(broker_id)
        if broker is not None:
            offset = len(self.rig.log)
            heartbeat = BrokerHeartbeat(broker_id, broker.epoch, offset, want_fence=fence, want_shut_down=leave)
            reply = self.do(c.Heartbeat(heartbeat, 1_000))
            after = self.broker(broker_id)
            assert after is not None
            assert reply.is_fenced == after.fenced
            if reply.should_shut_down:
                assert all(self.partition(name).leader != broker_id for name in TOPICS)

    @rule(broker_id=brokers)
    def verdict(self, broker_id: int) -> None:
        self.do(c.FenceBroker(broker_id))

    @rule(broker_id=brokers)
    def stale_verdict(self, broker_id: int) -> None:
        broker = self.broker(broker_id)
        before = len(self.rig.log)
        assert broker is None or self.do(c.FenceBroker(broker_id, broker.epoch - 1)) is ErrorCode.STALE_BROKER_EPOCH
        assert len(self.rig.log) == before

    @rule(broker_id=brokers, really=rarely)
    def unregister(self, broker_id: int, really: bool) -> None:
        if really:
            self.do(c.UnregisterBroker(broker_id))

    # ---- people and jobs ------------------------------------------------------------------------------------------------

    @rule(name=topics, replicas=st.none() | some)
    def move(self, name: str, replicas: list[int] | None) -> None:
        self.do(c.AlterReassignments((NewReplicas(name, 0, None if replicas is None else tuple(replicas)),)))

    @rule(name=topics, value=st.integers(1, 3))
    def require(self, name: str, value: int) -> None:
        """Another `min.insync.replicas`."""
        change = ("min.insync.replicas", ConfigOperation.SET, str(value))
        (result,) = self.do(c.AlterConfigs((ConfigChange(RESOURCE_TOPIC, name, (change,)),)))
        assert result.error is ErrorCode.NONE
        self.model[name].min_isr = value
        if self.partition(name).leader != NO_LEADER:
            self.model[name].acknowledge(self.partition(name))

    @rule()
    def prefer(self) -> None:
        self.do(c.ElectLeaders(None, Election.PREFERRED))

    @rule()
    def elect_unclean(self) -> None:
        self.do(c.ElectLeaders((("unclean", 0),), Election.UNCLEAN))

    @rule(command=st.sampled_from([c.BalanceLeaders(), c.ElectUnclean()]))
    def job(self, command: c.Command) -> None:
        self.do(command)

    @precondition(lambda self: self.rig.log)
    @rule()
    def another_controller(self) -> None:
        """The state is the log, and a controller that begins anew decides as the one before."""
        state = ControllerState(
            ControllerConfig(1, CLUSTER_ID), PlainConfigs(), self.rig.core.state.rng, lambda: len(self.rig.log)
        )
        core = Controller(state)
        for offset, record in enumerate(self.rig.log):
            core.apply(offset, record, 1)
        assert state.image == self.rig.core.state.image
        self.rig.core = core
        self.do(c.Bootstrap(at_ms=1_000))

    # ---- what always holds ----------------------------------------------------------------------------------------------

    @invariant()
    def shapes(self) -> None:
        for name in TOPICS:
            partition = self.partition(name)
            check_shape(partition, self.model[name].min_isr, elr=self.elr)
            members = [self.broker(broker_id) for broker_id in partition.isr]
            if partition.leader != NO_LEADER:
                leader = self.broker(partition.leader)
                assert leader is not None
                assert leader.is_active
                held = partition.directories[partition.replicas.index(partition.leader)]
                assert held in leader.directories
                assert all(member is not None and member.is_active for member in members)
            elif self.elr:
                assert not any(member is not None and member.is_active for member in members)

    @invariant()
    def a_safe_partition_is_led_by_whoever_can(self) -> None:
        """Nobody waits who need not: an eligible replica that lives leads."""
        for name in TOPICS:
            partition = self.partition(name)
            if partition.leader == NO_LEADER:
                for broker_id in partition.isr or partition.elr:
                    broker = self.broker(broker_id)
                    held = partition.directories[partition.replicas.index(broker_id)]
                    assert broker is None or not broker.is_active or held not in broker.directories


def test_the_controller_agrees_with_the_model() -> None:
    run_machine(ControllerMachine, examples=150, steps=60)
