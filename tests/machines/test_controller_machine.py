"""The controller against a model of replica logs: an elected leader has all acknowledged records, except after unclean
elections.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from odradek.cluster.controller import commands as c
from odradek.cluster.controller import sweeps
from odradek.cluster.controller.core import Controller
from odradek.cluster.controller.election import Election
from odradek.cluster.controller.messages.brokers import BrokerHeartbeat
from odradek.cluster.controller.messages.partitions import NewReplicas, PartitionIsr
from odradek.cluster.controller.messages.settings import ConfigChange, ConfigOperation
from odradek.cluster.controller.messages.topics import NewTopic
from odradek.cluster.controller.state import ControllerConfig, ControllerState
from odradek.cluster.metadata.image import EMPTY_IMAGE, RESOURCE_TOPIC
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shard import RetryAfter
from tests.machines.replica_model import NO_LEADER, Replicas, check_shape
from tests.support.effort import run_machine
from tests.support.raft_memory import CLUSTER_ID, ControllerRig, PlainConfigs, registration

if TYPE_CHECKING:
    from odradek.cluster.metadata.image import BrokerImage, MetadataImage, PartitionImage

BROKERS = (1, 2, 3, 4)
brokers = st.sampled_from(BROKERS)
broker_lists = st.lists(brokers, min_size=1, max_size=4, unique=True)
rarely = st.sampled_from([False] * 4 + [True])
TOPICS = ("safe", "min1", "unclean")
topics = st.sampled_from(TOPICS)
MIN_ISR = {"safe": 2, "min1": 1, "unclean": 2}


class ControllerMachine(RuleBasedStateMachine):
    """Operations on four brokers and three topics of one partition each. The model holds the logs of the replicas."""

    changes_per_slice = sweeps.CHANGES_PER_SLICE

    @initialize(elr=st.sampled_from([True, True, False]))
    def start(self, elr: bool) -> None:
        self.elr = elr
        self.waiting: list[c.Command] = []
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(sweeps, "CHANGES_PER_SLICE", self.changes_per_slice)
        self.leaving: dict[int, int] = {}
        """Epoch of each broker that has wanted to shut down."""
        self.stopped: set[int] = set()
        """Brokers that stopped together. They keep leaders and ISRs until they are fenced or start again."""
        self.rig = ControllerRig().with_brokers(*BROKERS, elr=elr)
        self.model = {name: Replicas(MIN_ISR[name]) for name in TOPICS}
        self.value = 0
        self.incarnations = dict.fromkeys(BROKERS, 7)
        self.directories = {broker_id: (UUID(int=(1 << 100) + broker_id),) for broker_id in BROKERS}
        for number, name in enumerate(TOPICS):
            configs = [("min.insync.replicas", str(MIN_ISR[name]))]
            if name == "unclean":
                configs.append(("unclean.leader.election.enable", "true"))
            replicas = tuple(BROKERS[(number + place) % 4] for place in range(3))
            self.rig.do(c.CreateTopics((NewTopic(name, assignments=((0, replicas),), configs=tuple(configs)),)))
        self.check_models()

    def teardown(self) -> None:
        self.patch.undo()

    # ---- state and commands -----------------------------------------------------------------------------------------

    def partition(self, name: str) -> PartitionImage:
        return self.rig.core.state.image.topics[name].partitions[0]

    def broker(self, broker_id: int) -> BrokerImage | None:
        return self.rig.core.state.image.brokers.get(broker_id)

    def is_stopping(self, broker_id: int) -> bool:
        broker = self.broker(broker_id)
        return broker is not None and not broker.fenced and broker.in_controlled_shutdown

    def may_be_member(self, broker_id: int) -> bool:
        """Return True if the broker may lead a partition with a leader, or be in its ISR."""
        broker = self.broker(broker_id)
        return broker is not None and (broker.is_active or broker_id in self.stopped)

    def leads(self, name: str) -> bool:
        """Return True if the partition has a leader that runs."""
        return self.partition(name).leader not in {NO_LEADER, *self.stopped}

    def check_models(self) -> None:
        self.stopped = set(filter(self.is_stopping, self.stopped))
        for name in TOPICS:
            self.model[name].check_change(self.partition(name))

    def do(self, command: c.Command) -> Any:
        """Return the reply, or the error code of the refusal."""
        try:
            reply = self.rig.do(command)
        except Refusal as refusal:
            return refusal.error
        self.check_models()
        return reply

    # ---- replication ------------------------------------------------------------------------------------------------

    @rule(name=topics)
    def write(self, name: str) -> None:
        if self.leads(name):
            self.value += 1
            self.model[name].append(self.partition(name), self.value)

    @rule(name=topics, follower=brokers, length=st.integers(0, 3))
    def copy(self, name: str, follower: int, length: int) -> None:
        partition = self.partition(name)
        if self.leads(name) and follower in partition.replicas and follower != partition.leader:
            self.model[name].copy(partition, follower, length)

    @rule(name=topics, records_after=st.integers(0, 2))
    def replicate_and_expand(self, name: str, records_after: int) -> None:
        """Let all followers catch up and join the ISR, then append records that not all of them have."""
        self.write(name)
        partition = self.partition(name)
        if self.leads(name):
            for follower in partition.replicas:
                broker = self.broker(follower)
                if follower != partition.leader and broker is not None and broker.is_active:
                    self.copy(name, follower, 1_000)
            self.expand(name)
            for _ in range(records_after):
                self.write(name)

    @rule()
    def unfence_all(self) -> None:
        """Unfence all registered brokers."""
        for broker_id in BROKERS:
            self.heartbeat_broker(broker_id, fence=False, shut_down=False)

    @rule(name=topics)
    def expand(self, name: str) -> None:
        """Let the leader add caught-up replicas to the ISR, as it does from its own state."""
        partition = self.partition(name)
        broker = self.broker(partition.leader)
        if broker is None or not self.leads(name):
            return
        caught_up = [
            r for r in partition.replicas if r not in partition.isr and self.model[name].caught_up(partition, r)
        ]
        isr = tuple(
            r
            for r in (*partition.isr, *caught_up)
            if (member := self.broker(r)) is not None
            and member.is_active
            and (r in partition.isr or r not in self.rig.core.state.draining)
        )
        result = self.alter(name, isr, sender=partition.leader)
        assert result is ErrorCode.NONE or result is ErrorCode.NEW_LEADER_ELECTED

    @rule(name=topics, data=st.data())
    def shrink(self, name: str, data: st.DataObject) -> None:
        partition = self.partition(name)
        if self.leads(name):
            removed = data.draw(st.sampled_from(partition.isr))
            if removed != partition.leader:
                remaining = tuple(r for r in partition.isr if r != removed)
                error = self.alter(name, remaining, sender=partition.leader)
                draining = partition.leader in self.rig.core.state.draining
                assert error is (ErrorCode.NEW_LEADER_ELECTED if draining else ErrorCode.NONE)

    @rule(
        name=topics,
        isr=broker_lists,
        sender=brokers,
        leader_epoch_change=st.integers(-1, 1),
        partition_epoch_change=st.integers(-1, 1),
    )
    def alter_partition_with_wrong_state(
        self, name: str, isr: list[int], sender: int, leader_epoch_change: int, partition_epoch_change: int
    ) -> None:
        """Send AlterPartition from a broker that is not the leader, or with wrong epochs.

        It is refused and writes nothing.
        """
        partition = self.partition(name)
        if sender == partition.leader and leader_epoch_change == partition_epoch_change == 0:
            return
        before = len(self.rig.log)
        assert (
            self.alter(
                name,
                tuple(isr),
                sender=sender,
                leader_epoch_change=leader_epoch_change,
                partition_epoch_change=partition_epoch_change,
            )
            is not ErrorCode.NONE
        )
        assert len(self.rig.log) == before

    def alter(
        self,
        name: str,
        isr: tuple[int, ...],
        *,
        sender: int,
        leader_epoch_change: int = 0,
        partition_epoch_change: int = 0,
    ) -> ErrorCode:
        partition, broker = self.partition(name), self.broker(sender)
        if broker is None:
            return ErrorCode.BROKER_ID_NOT_REGISTERED
        members = tuple((r, member.epoch if (member := self.broker(r)) else -1) for r in isr)
        topic_id = self.rig.core.state.image.topics[name].topic_id
        change = PartitionIsr(
            topic_id,
            0,
            partition.leader_epoch + leader_epoch_change,
            partition.partition_epoch + partition_epoch_change,
            members,
        )
        results = self.do(c.AlterPartition(sender, broker.epoch, (change,)))
        (result,) = results
        error: ErrorCode = result.error
        return error

    # ---- registration and failures ----------------------------------------------------------------------------------

    @rule(broker_id=brokers, clean=st.booleans(), lost=rarely, data=st.data())
    def restart(self, broker_id: int, clean: bool, lost: bool, data: st.DataObject) -> None:
        """Stop a broker cleanly or not, replace its disk if `lost`, and register it again."""
        before = self.broker(broker_id)
        self.incarnations[broker_id] += 1
        if lost:
            self.directories[broker_id] = (UUID(int=(1 << 101) + self.incarnations[broker_id] * 10 + broker_id),)
        previous = before.epoch if before is not None and clean else -1
        for name, model in self.model.items():
            if lost or not clean:
                partition = self.partition(name)
                is_only_isr_member = not partition.isr or partition.isr == (broker_id,)
                if not self.elr and is_only_isr_member and not lost:
                    model.excused.add(broker_id)
                kept_records = 0 if lost else data.draw(st.integers(0, len(model.log(broker_id))))
                model.lose(broker_id, kept_records)
        new_registration = replace(
            registration(broker_id, incarnation=self.incarnations[broker_id], previous=previous),
            directories=self.directories[broker_id],
        )
        if self.do(c.RegisterBroker(new_registration, 0)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self.do(c.FenceBroker(broker_id))
            assert not isinstance(self.do(c.RegisterBroker(new_registration, 0)), ErrorCode)

    @rule(broker_id=brokers, fence=rarely, shut_down=rarely)
    def heartbeat_broker(self, broker_id: int, fence: bool, shut_down: bool) -> None:
        broker = self.broker(broker_id)
        if broker is not None:
            offset = len(self.rig.log)
            if shut_down:
                self.leaving[broker_id] = broker.epoch
            # A broker that wants to shut down repeats that until its process ends.
            shut_down = self.leaving.get(broker_id) == broker.epoch
            heartbeat = BrokerHeartbeat(broker_id, broker.epoch, offset, want_fence=fence, want_shut_down=shut_down)
            reply = self.do(c.Heartbeat(heartbeat, 1_000))
            after = self.broker(broker_id)
            assert after is not None
            assert reply.is_fenced == after.fenced
            if reply.should_shut_down and not any(self.rig.core.state.image.active_brokers()):
                self.stopped.update(filter(self.is_stopping, BROKERS))
            elif reply.should_shut_down:
                assert all(self.partition(name).leader != broker_id for name in TOPICS)

    @rule(broker_id=brokers)
    def fence_broker(self, broker_id: int) -> None:
        self.do(c.FenceBroker(broker_id))

    @rule(broker_id=brokers)
    def begin_to_fence(self, broker_id: int) -> None:
        """Fence a broker. If its leaders are moved first, other rules run before the fencing is complete."""
        command = c.FenceBroker(broker_id)
        try:
            if isinstance(self.rig.decide(command), RetryAfter):
                self.waiting.append(command)
        except Refusal:
            pass
        self.check_models()

    @precondition(lambda self: self.rig.due)
    @rule()
    def next_slice(self) -> None:
        """Decide the next slice. After a drain, decide the commands that wait for it."""
        self.rig.run_next_due()
        self.check_models()
        if all(self.rig.core.state.draining.values()):
            waiting, self.waiting = self.waiting, []
            for command in waiting:
                self.do(command)

    @precondition(lambda self: self.rig.later)
    @rule()
    def release(self) -> None:
        """End the drains that no command has used."""
        while self.rig.later:
            _, command = self.rig.later.popitem()
            self.do(command)

    @rule(broker_id=brokers)
    def fence_broker_with_stale_epoch(self, broker_id: int) -> None:
        broker = self.broker(broker_id)
        before = len(self.rig.log)
        assert broker is None or self.do(c.FenceBroker(broker_id, broker.epoch - 1)) is ErrorCode.STALE_BROKER_EPOCH
        assert len(self.rig.log) == before

    @rule(broker_id=brokers, really=rarely)
    def unregister(self, broker_id: int, really: bool) -> None:
        if really:
            self.do(c.UnregisterBroker(broker_id))

    # ---- operators and background jobs ------------------------------------------------------------------------------

    @rule(name=topics, replicas=st.none() | broker_lists)
    def move(self, name: str, replicas: list[int] | None) -> None:
        self.do(c.AlterReassignments((NewReplicas(name, 0, None if replicas is None else tuple(replicas)),)))

    @rule(name=topics, value=st.integers(1, 3))
    def change_min_insync_replicas(self, name: str, value: int) -> None:
        """Change `min.insync.replicas` of a topic."""
        change = ("min.insync.replicas", ConfigOperation.SET, str(value))
        (result,) = self.do(c.AlterConfigs((ConfigChange(RESOURCE_TOPIC, name, (change,)),)))
        assert result.error is ErrorCode.NONE
        self.model[name].min_isr = value
        if self.partition(name).leader != NO_LEADER:
            self.model[name].acknowledge(self.partition(name))

    @rule()
    def elect_preferred(self) -> None:
        self.do(c.ElectLeaders(None, Election.PREFERRED))

    @rule()
    def elect_unclean(self) -> None:
        self.do(c.ElectLeaders((("unclean", 0),), Election.UNCLEAN))

    @rule(command=st.sampled_from([c.BalanceLeaders(), c.ElectUnclean()]))
    def job(self, command: c.Command) -> None:
        self.do(command)

    @precondition(lambda self: self.rig.log)
    @rule(data=st.data())
    def replay_into_new_controller(self, data: st.DataObject) -> None:
        """Replace the controller by one that starts from an earlier image, and replays the rest of the log.

        The metadata image must be equal.
        """
        start = data.draw(st.integers(0, len(self.rig.log)))
        earlier = self.new_controller(EMPTY_IMAGE, 0, start)
        while earlier.state.in_transaction:  # no image is published within a metadata transaction
            earlier.apply(start, self.rig.log[start], 1)
            start += 1
        core = self.new_controller(earlier.state.image, start, len(self.rig.log))
        assert core.state.image == self.rig.core.state.image
        assert core.state.collision_keys == self.rig.core.state.collision_keys
        assert core.state.shutdown_offsets.keys() >= {
            broker_id for broker_id, broker in core.state.image.brokers.items() if broker.in_controlled_shutdown
        }
        self.rig.core = core
        self.waiting.clear()
        self.rig.later.clear()
        self.rig.due = {timer.key: timer.command for timer in core.on_loaded(1, 0).timers if timer.delay_ms == 0}
        self.do(c.Bootstrap(at_ms=1_000))

    def new_controller(self, image: MetadataImage, start: int, end: int) -> Controller:
        """Return a controller that starts from `image`, and replays the log from `start` to `end`."""
        state = ControllerState(
            ControllerConfig(1, CLUSTER_ID), PlainConfigs(), self.rig.core.state.rng, lambda: len(self.rig.log)
        )
        state.start_from(image)
        core = Controller(state)
        for offset in range(start, end):
            core.apply(offset, self.rig.log[offset], 1)
        return core

    # ---- invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def partitions_are_well_formed(self) -> None:
        for name in TOPICS:
            partition = self.partition(name)
            check_shape(partition, self.model[name].min_isr, elr=self.elr)
            if partition.leader != NO_LEADER:
                leader = self.broker(partition.leader)
                assert leader is not None
                assert self.may_be_member(partition.leader)
                directory = partition.directories[partition.replicas.index(partition.leader)]
                assert directory in leader.directories
                assert all(map(self.may_be_member, partition.isr))
            elif self.elr and not self.rig.due and not self.rig.core.state.draining:
                members = map(self.broker, partition.isr)
                assert not any(member is not None and member.is_active for member in members)

    @invariant()
    def active_eligible_replica_leads(self) -> None:
        """A partition has no leader only if no eligible replica is active with its directory."""
        for name in TOPICS if not self.rig.due and not self.rig.core.state.draining else ():
            partition = self.partition(name)
            if partition.leader == NO_LEADER:
                for broker_id in partition.isr or partition.elr:
                    broker = self.broker(broker_id)
                    directory = partition.directories[partition.replicas.index(broker_id)]
                    assert broker is None or not broker.is_active or directory not in broker.directories


def test_controller_elects_replicas_with_all_acknowledged_records() -> None:
    run_machine(ControllerMachine, examples=150, steps=60)


class SlicesMachine(ControllerMachine):
    """The controller divides each change of a broker that concerns more than one partition."""

    changes_per_slice = 1


def test_controller_that_moves_leaders_in_slices_elects_replicas_with_all_acknowledged_records() -> None:
    run_machine(SlicesMachine, examples=100, steps=60)
