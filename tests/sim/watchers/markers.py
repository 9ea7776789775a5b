"""I14 while brokers run: a marker is written only after its decision was committed."""

from typing import TYPE_CHECKING

from tests.sim.checkers.batches import Batch
from tests.sim.checkers.coordinator_log import COMPLETE_ABORT, COMPLETE_COMMIT, PREPARE_ABORT, PREPARE_COMMIT, Entry
from tests.sim.checkers.visibility import Marker
from tests.sim.history import Partition
from tests.sim.world import CONSUMER_OFFSETS, TRANSACTION_STATE

if TYPE_CHECKING:
    from tests.sim.watchers.commit_delays import CommitDelays
    from tests.sim.watchers.monitor import Monitor

TV2 = 2

MarkerKey = tuple[int, int, bool, Partition]
"""Producer id, producer epoch, True for COMMIT, partition: the fields of a marker that identify its transaction."""


class MarkerWatch:
    """Check of every written marker. `required`: number of hosts that must hold its decision."""

    def __init__(self, monitor: "Monitor", commit_delays: "CommitDelays", *, flush: bool, required: int) -> None:
        self._monitor = monitor
        self._commit_delays = commit_delays
        self._flush = flush
        self._required = required
        self._served: dict[tuple[Partition, int, int], None] = {}
        self._decisions: dict[MarkerKey, list[Batch]] = {}
        """Batches with this decision. The classic protocol may repeat a key, for one transaction after the other."""

    def decided(self, batch: Batch, entries: list[Entry]) -> None:
        """Record the decisions in entries that a coordinator wrote."""
        for entry in entries:
            if entry.state in {PREPARE_COMMIT, PREPARE_ABORT}:
                for partition in entry.partitions:
                    key = (entry.producer_id, entry.producer_epoch, entry.state == PREPARE_COMMIT, partition)
                    self._decisions.setdefault(key, []).append(batch)

    def check(self, partition: Partition, batch: Batch, marker: Marker) -> None:
        """I14: the coordinator made this decision for this partition, and it was committed before the marker was
        written.
        """
        commit = marker.commit
        key = (batch.producer_id, batch.producer_epoch, commit, partition)
        if self._was_delayed(key, batch, marker):
            return
        where = (
            f"I14 {partition[0]}-{partition[1]} offset {batch.base_offset}: {'COMMIT' if commit else 'ABORT'} of "
            f"producer {batch.producer_id}"
        )
        findings: list[str] = []
        holders = 0
        for number, index, entry in self._entries_of(batch.producer_id):
            finding = self._mismatch(partition, batch, entry, commit=commit)
            if finding is not None:
                findings.append(f"{finding} on broker {number}")
            elif not self._is_committed(index, entry.offset):
                findings.append(f"the prepare record at {entry.offset} is not committed")
            else:
                holders = max(holders, self._monitor.holders_of((TRANSACTION_STATE, index), number, entry.offset))
                self._count_retry((partition, index, entry.offset))
                if holders >= self._required:
                    return
        if self._is_from_deposed_leader(key, batch):
            self._monitor.count("marker appended by a deposed leader")
            return
        reason = "; ".join(findings) or "without any coordinator entry"
        self._monitor.violations.append(f"{where}: {reason} (decided on {holders} brokers, not {self._required})")

    def _was_delayed(self, key: MarkerKey, batch: Batch, marker: Marker) -> bool:
        """Return True if the network delivered the marker of an earlier decision of the same epoch only now.

        If a transaction of the classic protocol is open, the marker ends it: the known gap of that protocol. Its values
        are recorded in `ended_late`. If none is open, the marker has no effect. Under TV2 each transaction has its own
        epoch, so the marker is a violation.
        """
        entries = self._entries_of(batch.producer_id)
        if not entries or key not in self._monitor.late_markers or not self._was_decided(key):
            return False
        number, index, newest = max(entries, key=lambda found: (found[2].leader_epoch, found[2].offset))
        holders = self._monitor.holders_of((TRANSACTION_STATE, index), number, newest.offset)
        if holders >= self._required and self._mismatch(key[3], batch, newest, commit=marker.commit) is None:
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

    def _is_from_deposed_leader(self, key: MarkerKey, batch: Batch) -> bool:
        """Return True if a deposed leader writes a marker whose decision was committed while it led.

        Scenario:
        1. The leader is paused with the coordinator's request in its socket.
        2. The coordinator sends the marker to the new leader, and completes the transaction.
        3. The old leader resumes and appends the marker. No replica fetches in the old epoch, so the append is never
           committed.
        If no other replica is left to lead, the append survives. The final checks of the logs then apply.
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
    def _mismatch(partition: Partition, batch: Batch, entry: Entry, *, commit: bool) -> str | None:
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
            return True  # `holders` decides
        place = (TRANSACTION_STATE, index)
        if self._commit_delays.committed(place) <= offset:
            return False
        return not self._flush or self._monitor.hosts[1].durable_end(place) > offset
