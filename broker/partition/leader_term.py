"""What a partition has for the time of one leadership: how an append becomes acknowledged, and then committed.

Three questions, asked one after the other about everything that was appended (see `odradek.broker.partition.flush`): is it safe enough on
this disk to be acknowledged (`GroupFlush`), does the gate of this node let it through, and do the replicas that count
have it (`odradek.cluster.replication.leader`). A broker that is the only replica stops after the second.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.partition.flush import CommitGateFactory, GroupFlush, Spawn
from odradek.broker.partition.waiters import OffsetWaiters
from odradek.cluster.replication.leader import IsrWish, LeaderReplicas, Replica
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.broker.partition.partition import Partition

UNKNOWN_EPOCH: Final = -1
TO_HIGH_WATERMARK: Final = -1
"""The offset in DeleteRecords that stands for everything that is committed."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """What the metadata log says about the partition while this broker leads it."""

    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Cluster(Protocol):
    """What partitions ask of the rest of the cluster."""

    @property
    def lag_max_ms(self) -> int:
        """replica.lag.time.max.ms."""

    def broker_epoch_of(self, broker_id: int) -> int | None:
        """The epoch of a broker that may join an ISR: registered, neither fenced nor shutting down. None for others."""

    def went_offline(self, topic: str, index: int, error: OSError) -> None:
        """The disk has refused something of the partition, which is not served here until a restart."""

    def change_isr(self, partition: "Partition", wish: IsrWish) -> None:
        """Send `wish` to the controller; its answer comes through `Partition.isr_answered`."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all partitions of a broker share."""

    node_id: int
    clock: Clock
    commit_gate: CommitGateFactory
    spawn: Spawn
    cluster: Cluster
    resigned: "Callable[[Partition], None]"
    """Told whenever a partition that was led is led no more, whatever the reason."""


class Leading:
    """One leadership of one partition, from `begin` to `close`."""

    __slots__ = ("_around", "_gate", "_partition", "deletions", "flush", "replicas")

    def __init__(self, partition: "Partition", leadership: Leadership, around: Surroundings) -> None:
        log = partition.log
        self._partition = partition
        self._around = around
        self.replicas = LeaderReplicas(
            around.node_id, leadership.leader_epoch, log.log_end_offset, lag_max_ms=around.cluster.lag_max_ms
        )
        self.deletions = OffsetWaiters()
        """DeleteRecords: they wait for the low watermark."""
        self._gate = around.commit_gate(partition.topic, partition.index, self._let_through)
        self.flush = GroupFlush(
            log,
            name=f"{partition.topic}-{partition.index}",
            messages=log.config.flush_messages,
            spawn=around.spawn,
            acknowledgeable=self._acknowledge,
            failed=partition.take_offline,
        )
        self.update(leadership)

    def update(self, leadership: Leadership) -> None:
        """The metadata log says something new about the same leadership."""
        replicas = self.replicas
        replicas.commit(
            leadership.replicas, leadership.isr, leadership.partition_epoch, self._around.clock.monotonic_ms()
        )
        self.configure()
        self.register()
        for broker_id, follower in self._partition.followers.items():
            if broker_id in replicas.followers and not replicas.followers[broker_id].in_sync:
                follower.fell_out()

    def configure(self) -> None:
        """min.insync.replicas may have changed. More replicas than exist are never asked for."""
        replicas = self.replicas
        replicas.min_isr = min(self._partition.log.config.min_insync_replicas, len(replicas.replicas))

    def register(self) -> None:
        """Brokers have come or gone, or may join an ISR now: one that has fetched already may have nothing more to fetch."""
        replicas = self.replicas
        replicas.register(self._around.cluster.broker_epoch_of)
        for replica in replicas.waiting(self._around.clock.monotonic_ms()):
            self.take_in(replica)
        self._low_watermark_moved()

    def close(self) -> None:
        self._gate.close()
        self.flush.close()
        self.deletions.fail(self._partition.role.value or ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # ---- the start of the log ---------------------------------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Let the log begin at `offset` (TO_HIGH_WATERMARK: at what is committed); where that is.

        Raises Refusal: POLICY_VIOLATION where the topic's policy keeps records, OFFSET_OUT_OF_RANGE beyond the high watermark.
        """
        log = self._partition.log
        if log.config.compacted and not log.config.deletes:
            raise Refusal(ErrorCode.POLICY_VIOLATION)
        start = log.high_watermark if offset == TO_HIGH_WATERMARK else offset
        if not 0 <= start <= log.high_watermark:
            raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
        if start > log.log_start_offset:
            log.move_log_start(start)
            self.log_start_moved()
        return start

    def log_start_moved(self) -> None:
        """Followers hear of it though nothing may be appended any more: DeleteRecords waits until they have followed."""
        for follower in self._partition.followers.values():
            follower.moved()

    @property
    def low_watermark(self) -> int:
        """The lowest log start of all replicas on brokers that are alive (KIP-107), -1 while one of them is not known."""
        known = [each.log_start for each in self.replicas.followers.values() if each.registered_epoch is not None]
        return min((self._partition.log.log_start_offset, *known))

    def _low_watermark_moved(self) -> None:
        if self.deletions:
            self.deletions.advance(self.low_watermark)

    # ---- own copy ---------------------------------------------------------------------------------------------------

    def _acknowledge(self, offset: int) -> None:
        partition = self._partition
        if offset <= partition.acknowledged_offset:
            return  # flush.messages was lowered: more was acknowledged before than is flushed now
        partition.acknowledged_offset = offset
        if offset >= partition.acknowledged.next_offset:
            partition.acknowledged.advance(offset)
        self._gate.acknowledgeable(offset)

    def _let_through(self, offset: int) -> None:
        replicas = self.replicas
        replicas.own_end = offset
        if replicas.alone:
            self._partition.advance_high_watermark(offset)
        else:
            self.recount()

    def recount(self) -> None:
        """Something has changed that the high watermark depends on."""
        partition = self._partition
        committed = self.replicas.committed(partition.log.log_end_offset, self._around.clock.monotonic_ms())
        if committed > partition.log.high_watermark:
            partition.advance_high_watermark(committed)

    # ---- followers --------------------------------------------------------------------------------------------------

    def follower(self, broker_id: int, broker_epoch: int, *, knows_epoch: bool) -> Replica:
        """The replica that fetches. Raises Refusal as Kafka does for one that is none, or that has registered anew since."""
        replica = self.replicas.followers.get(broker_id)
        if replica is None:
            raise Refusal(ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        registered = replica.registered_epoch
        if broker_epoch != UNKNOWN_EPOCH and registered is not None and broker_epoch < registered:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    def fetched(self, replica: Replica, broker_epoch: int, offset: int, now_ms: int) -> None:
        """`replica` has everything below `offset`."""
        replica.broker_epoch = broker_epoch
        replica.fetched(offset, leader_end=self._partition.log.log_end_offset, now_ms=now_ms)
        self.recount()
        self._low_watermark_moved()
        if not replica.in_sync:
            self.take_in(replica)

    def take_in(self, replica: Replica) -> None:
        """Ask for `replica` to be in sync, if it may be."""
        self._send(self.replicas.expansion(replica, self._partition.log.high_watermark))

    def look_for_lag(self, now_ms: int) -> None:
        """Take out of the ISR who has not kept up."""
        self._send(self.replicas.shrinkage(self._partition.log.log_end_offset, now_ms))

    def _send(self, wish: IsrWish | None) -> None:
        if wish is not None:
            self._around.cluster.change_isr(self._partition, wish)
