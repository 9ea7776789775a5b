"""Watches `__consumer_offsets` on all hosts while they run: who coordinates, what is pending, what has been settled."""

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
"""(producer id, partition of the input) -> offset of the record that made it pending."""


class GroupWatch:
    """Also what the members of all groups share: `calm` when the faults have stopped, `over` when they are to go."""

    def __init__(self, monitor: "Monitor", clock: Callable[[], int]) -> None:
        self.calm = False
        self.over = False
        self.topic_id = UUID(int=0)
        self.partitions = 1
        """Of `__consumer_offsets`."""
        self.transactions = 0
        """Begun by copiers."""
        self.ended_late: dict[int, None] = {}
        """Producers of the classic protocol whose open transaction was ended here by a marker that came late."""
        self.written = GroupModel()
        """All that leaders have written, whatever became of it: for counting, and for what members were told."""
        self.begun_anew: list[tuple[str, int]] = []
        """Group, and place in the order of all events, where it began to count its epochs anew."""
        self._monitor = monitor
        self._clock = clock
        self._models: dict[tuple[int, int], FollowedGroups] = {}

    # -- who coordinates

    def partition_of(self, group: str) -> int:
        """As Java hashes (names of groups are ASCII here)."""
        value = 0
        for character in group:
            value = (31 * value + ord(character)) & 0xFFFFFFFF
        signed = value - (1 << 32) if value >= 1 << 31 else value
        return abs(signed) % self.partitions

    def leads(self, group: str, number: int) -> bool:
        """Whether the controller names that broker as the group's coordinator."""
        state = self._monitor.metadata.partitions.get((CONSUMER_OFFSETS, self.partition_of(group)))
        return state is None or state.leader in {number, NO_LEADER} or len(self._monitor.hosts) == 1

    # -- what the logs say

    def model(self, number: int, index: int) -> GroupModel:
        """What that host's log says so far."""
        log = self._monitor.hosts[number].log((CONSUMER_OFFSETS, index))
        followed = self._models.get((number, index))
        if followed is None or followed.log is not log or followed.cuts != log.cuts:
            followed = self._models[number, index] = FollowedGroups(log)
        return followed.up_to_date()

    def indexes(self) -> list[int]:
        return sorted(
            {i for host in self._monitor.hosts.values() for topic, i in host.logs if topic == CONSUMER_OFFSETS}
        )

    def committed(self) -> dict[Place, int]:
        """Every offset in force, by the logs that count."""
        found = {}
        for index in self.indexes():
            model = self.model(self._monitor.counting((CONSUMER_OFFSETS, index)), index)
            found.update({place: each.offset for place, each in model.committed.items() if each.offset is not None})
        return found

    def any_pending(self, index: int) -> bool:
        return any(
            self.model(number, index).pending
            for number, host in self._monitor.hosts.items()
            if (CONSUMER_OFFSETS, index) in host.logs
        )

    # -- what is written

    def on_batch(self, host: "HostLogs", partition: Partition, batch: Batch) -> None:
        """A leader has written this."""
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

    # -- what clients are told

    def settled_pending(self, group: str, number: int) -> Pending:
        """What hangs on open transactions for the group, by the log of that host."""
        if number not in self._monitor.hosts:
            return {}
        model = self.model(number, self.partition_of(group))
        return {
            (producer_id, place[1:]): change.record
            for producer_id, changes in model.pending.items()
            for place, change in changes.items()
            if place[0] == group
        }

    def judge_stable(self, operation: Operation, before: Pending, told: list[Partition]) -> None:
        """KIP-447: no offset is told to who wants stable ones that hung on one transaction from the question to the answer."""
        still = self.settled_pending(operation.group, operation.node)
        for (producer_id, place), record in before.items():
            if place in told and still.get((producer_id, place)) == record:
                self._monitor.violations.append(
                    f"I7 {operation.group}: broker {operation.node} told a stable offset of {place} while the one at {record} of producer {producer_id} was pending"
                )
