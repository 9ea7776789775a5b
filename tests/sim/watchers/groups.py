"""Watch `__consumer_offsets` on all hosts while they run: coordinators, pending offsets and committed offsets."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from tests.sim.checkers.batches import Batch
from tests.sim.checkers.group_log import FollowedGroups, GroupModel, Place
from tests.sim.checkers.metadata_log import NO_LEADER
from tests.sim.history import Operation, Partition
from tests.sim.world import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from tests.sim.watchers.host_logs import HostLogs
    from tests.sim.watchers.monitor import Monitor

Pending = dict[tuple[int, Partition], int]
"""(producer id, partition) -> offset of the record that made an offset pending."""


class GroupWatch:
    """Group state from the logs of all hosts, and flags for the members.

    `calm`: the faults have stopped. `over`: the members have to leave.
    """

    def __init__(self, monitor: "Monitor", clock: Callable[[], int]) -> None:
        self.calm = False
        self.over = False
        self.topic_id = UUID(int=0)
        self.partitions = 1
        """Number of partitions of `__consumer_offsets`."""
        self.transactions = 0
        """Number of transactions that copiers began."""
        self.ended_late: dict[int, None] = {}
        """Producers of the classic transaction protocol whose open transaction was ended by a delayed marker."""
        self.written = GroupModel()
        """All records written by any leader, committed or not. Used for counters and for assignments in responses."""
        self.begun_anew: list[tuple[str, int]] = []
        """Group, and position in the order of all events, at which the group restarted the count of its epochs."""
        self._monitor = monitor
        self._clock = clock
        self._models: dict[tuple[int, int], FollowedGroups] = {}

    # group coordinators

    def partition_of(self, group: str) -> int:
        """Return the partition of the group: Java's `String.hashCode` modulo the number of partitions, for ASCII."""
        value = 0
        for character in group:
            value = (31 * value + ord(character)) & 0xFFFFFFFF
        signed = value - (1 << 32) if value >= 1 << 31 else value
        return abs(signed) % self.partitions

    def leads(self, group: str, number: int) -> bool:
        """Return True if the controller names that broker as the coordinator of the group."""
        state = self._monitor.metadata.partitions.get((CONSUMER_OFFSETS, self.partition_of(group)))
        return state is None or state.leader in {number, NO_LEADER} or len(self._monitor.hosts) == 1

    # logs

    def model(self, number: int, index: int) -> GroupModel:
        """Return the group model of that host's log so far."""
        log = self._monitor.hosts[number].log((CONSUMER_OFFSETS, index))
        followed = self._models.get((number, index))
        if followed is None or followed.log is not log or followed.truncations != log.truncations:
            followed = self._models[number, index] = FollowedGroups(log)
        return followed.up_to_date()

    def indexes(self) -> list[int]:
        return sorted(
            {i for host in self._monitor.hosts.values() for topic, i in host.logs if topic == CONSUMER_OFFSETS}
        )

    def committed(self) -> dict[Place, int]:
        """Return all committed offsets, from the log of each partition's leader."""
        offsets = {}
        for index in self.indexes():
            model = self.model(self._monitor.authoritative_host((CONSUMER_OFFSETS, index)), index)
            offsets.update(
                {place: commit.offset for place, commit in model.committed.items() if commit.offset is not None}
            )
        return offsets

    def any_pending(self, index: int) -> bool:
        return any(
            self.model(number, index).pending
            for number, host in self._monitor.hosts.items()
            if (CONSUMER_OFFSETS, index) in host.logs
        )

    # appends

    def on_batch(self, host: "HostLogs", partition: Partition, batch: Batch) -> None:
        """Process a batch that a leader wrote."""
        model = self.model(host.number, partition[1])
        for finding in model.findings:
            self._monitor.violations.append(f"{finding}, written by broker {host.number}")
        model.findings.clear()
        before = dict(self.written.begun_anew)
        self.written.add(batch)
        for group, times in self.written.begun_anew.items():
            if times != before.get(group):
                self.begun_anew.append((group, self._clock()))
        self.written.findings.clear()

    # responses to clients

    def pending_offsets(self, group: str, number: int) -> Pending:
        """Return the pending offsets of the group by the log of that host."""
        if number not in self._monitor.hosts:
            return {}
        model = self.model(number, self.partition_of(group))
        return {
            (producer_id, place[1:]): change.record
            for producer_id, changes in model.pending.items()
            for place, change in changes.items()
            if place[0] == group
        }

    def check_stable(self, operation: Operation, before: Pending, returned: list[Partition]) -> None:
        """KIP-447: a stable OffsetFetch must not return an offset that was pending in one transaction during the whole
        request.
        """
        still = self.pending_offsets(operation.group, operation.node)
        for (producer_id, place), record in before.items():
            if place in returned and still.get((producer_id, place)) == record:
                self._monitor.violations.append(
                    f"I7 {operation.group}: broker {operation.node} returned a stable offset of {place} while the "
                    f"one at {record} of producer {producer_id} was pending"
                )
