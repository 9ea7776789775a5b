"""I14 at the moment: a marker is written only after its decision has been committed."""

from typing import TYPE_CHECKING

from tests.sim.checkers.batches import Batch
from tests.sim.checkers.coordinator_log import COMPLETE_ABORT, COMPLETE_COMMIT, PREPARE_ABORT, PREPARE_COMMIT, Entry
from tests.sim.checkers.visibility import Marker
from tests.sim.history import Partition
from tests.sim.world import CONSUMER_OFFSETS, TRANSACTION_STATE

if TYPE_CHECKING:
    from tests.sim.watchers.commit_delays import GateKeeper
    from tests.sim.watchers.monitor import Monitor

TV2 = 2

MarkerKey = tuple[int, int, bool, Partition]
"""Producer id, epoch, whether to commit, partition: all that a marker says of its transaction."""


class MarkerWatch:
    """`required`: so many hosts must hold the decision."""

    def __init__(self, monitor: "Monitor", gates: "GateKeeper", *, flush: bool, required: int) -> None:
        self._monitor = monitor
        self._gates = gates
        self._flush = flush
        self._required = required
        self._served: dict[tuple[Partition, int, int], None] = {}
        self._decisions: dict[MarkerKey, list[Batch]] = {}
        """Where a coordinator says so: in the classic protocol more than once, for one transaction after the other."""

    def decided(self, batch: Batch, entries: list[Entry]) -> None:
        """A coordinator has written these."""
        for entry in entries:
            if entry.state in {PREPARE_COMMIT, PREPARE_ABORT}:
                for partition in entry.partitions:
                    key = (entry.producer_id, entry.producer_epoch, entry.state == PREPARE_COMMIT, partition)
                    self._decisions.setdefault(key, []).append(batch)

    def judge(self, partition: Partition, batch: Batch, marker: Marker) -> None:
        """I14: the coordinator decided this, the decision names this partition, and it was committed before the marker was written."""
        commit = marker.commit
        key = (batch.producer_id, batch.producer_epoch, commit, partition)
        if self._came_late(key, batch, marker):
            return
        where = f"I14 {partition[0]}-{partition[1]} offset {batch.base_offset}: {'COMMIT' if commit else 'ABORT'} of producer {batch.producer_id}"
        findings: list[str] = []
        holders = 0
        for number, index, entry in self._entries_of(batch.producer_id):
            finding = self._objection(partition, batch, entry, commit=commit)
            if finding is not None:
                findings.append(f"{finding} on broker {number}")
            elif not self._is_committed(index, entry.offset):
                findings.append(f"the prepare record at {entry.offset} is not committed")
            else:
                holders = max(holders, self._monitor.holders_of((TRANSACTION_STATE, index), number, entry.offset))
                self._count_retry((partition, index, entry.offset))
                if holders >= self._required:
                    return
        if self._is_of_the_past(key, batch):
            self._monitor.count("marker appended by a deposed leader")
            return
        why = "; ".join(findings) or "without any coordinator entry"
        self._monitor.violations.append(f"{where}: {why} (decided on {holders} brokers, not {self._required})")

    def _came_late(self, key: MarkerKey, batch: Batch, marker: Marker) -> bool:
        """Whether the network delivers the marker of an earlier decision of the same epoch only now.

        Where a transaction of the classic protocol is open by now, it ends that one, which is the hole of that protocol; what it ended is
        noted. Where nothing is open it does no harm. Under TV2 each transaction has its own epoch, so there it is no excuse.
        """
        entries = self._entries_of(batch.producer_id)
        if not entries or key not in self._monitor.late_markers or not self._was_decided(key):
            return False
        number, index, newest = max(entries, key=lambda each: (each[2].leader_epoch, each[2].offset))
        holders = self._monitor.holders_of((TRANSACTION_STATE, index), number, newest.offset)
        if holders >= self._required and self._objection(key[3], batch, newest, commit=marker.commit) is None:
            return False
        if marker.first_offset is None:
            self._monitor.count("late markers that ended nothing")
            return True
        if newest.client_version >= TV2:
            return False
        self._monitor.count("classic transactions exposed to a late marker")
        self._monitor.ended_late.update(dict.fromkeys(marker.values))
        if key[3][0] == CONSUMER_OFFSETS:
            self._monitor.groups.ended_late[batch.producer_id] = None
        return True

    def _was_decided(self, key: MarkerKey) -> bool:
        decisions = self._decisions.get(key, ())
        return any(self._monitor.holders_of_batch(decision) >= self._required for decision in decisions)

    def _is_of_the_past(self, key: MarkerKey, batch: Batch) -> bool:
        """Whether a leader that has been deposed writes what was decided, and committed, while it led.

        It has been paused, with the coordinator's request in its socket; the coordinator has long had the marker from its successor, and gone
        on. The append can never be committed: no replica fetches in the old epoch. Should it survive, since nobody else is left to lead, the
        logs are judged at the end like all others.
        """
        state = self._monitor.metadata.partitions.get(key[3])
        return state is not None and batch.leader_epoch < state.leader_epoch and self._was_decided(key)

    def _count_retry(self, served: tuple[Partition, int, int]) -> None:
        if served in self._served:
            self._monitor.count("marker retry")
        self._served[served] = None

    def _entries_of(self, producer_id: int) -> list[tuple[int, int, Entry]]:
        monitor = self._monitor
        found = []
        for number, host in monitor.hosts.items():
            for topic, index in host.logs:
                if topic == TRANSACTION_STATE:
                    entry = monitor.coordinator(number, index).by_producer.get(producer_id)
                    if entry is not None:
                        found.append((number, index, entry))
        return found

    @staticmethod
    def _objection(partition: Partition, batch: Batch, entry: Entry, *, commit: bool) -> str | None:
        expected = (PREPARE_COMMIT, COMPLETE_COMMIT) if commit else (PREPARE_ABORT, COMPLETE_ABORT)
        if entry.state not in expected:
            return f"the coordinator's state is {entry.state}"
        if entry.state not in {PREPARE_COMMIT, PREPARE_ABORT}:
            return None
        if entry.producer_epoch != batch.producer_epoch:
            return f"epoch {batch.producer_epoch}, the coordinator's {entry.producer_epoch}"
        if partition not in entry.partitions:
            return f"not a partition of the transaction {sorted(entry.partitions)}"
        return None

    def _is_committed(self, index: int, offset: int) -> bool:
        if self._required > 1:
            return True  # counted by its holders
        place = (TRANSACTION_STATE, index)
        if self._gates.committed(place) <= offset:
            return False
        return not self._flush or self._monitor.hosts[1].durable_end(place) > offset
