"""Watch the disks of all brokers while they run, with the checkers' own readers.

Some invariants can be checked only at the time of an event. A marker follows a *committed* prepare record. No response
contains an offset above the last stable offset. A new leader holds all acknowledged records. The monitor parses each
write to a log when it happens, and reads the logs again after a crash.
"""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.protocol.special_values import NO_LEADER_EPOCH
from odradek.simulation.environment.medium import Medium
from tests.sim.checkers.batches import Batch
from tests.sim.checkers.committed import CommittedLog
from tests.sim.checkers.coordinator_log import PREPARE_ABORT, CoordinatorModel, read_entries
from tests.sim.checkers.evidence import SnapshotRow
from tests.sim.checkers.metadata_log import NO_LEADER, Change, MetadataModel
from tests.sim.checkers.recovery import accept_expired, accept_removed_batches, expected_rows, stable_end
from tests.sim.checkers.replica_log import ReplicaLog
from tests.sim.checkers.visibility import PartitionModel
from tests.sim.history import Partition
from tests.sim.watchers.compaction import CompactionWatch
from tests.sim.watchers.groups import GroupWatch
from tests.sim.watchers.host_logs import HostLogs, Known
from tests.sim.watchers.markers import MarkerKey, MarkerWatch
from tests.sim.watchers.metadata import MetadataWatch
from tests.sim.world import CONSUMER_OFFSETS, COORDINATED, METADATA, TABLE, TENANT_TOPICS, TRANSACTION_STATE

if TYPE_CHECKING:
    from odradek.broker.partition.registry import Partitions
    from tests.sim.watchers.commit_delays import CommitDelays


class Monitor:
    """Models of all partitions on all hosts, and the violations found while they run."""

    def __init__(
        self,
        root: str,
        topic: str,
        commit_delays: "CommitDelays",
        clock: Callable[[], int],
        *,
        flush: bool,
        brokers: int = 1,
        voters: int = 1,
        min_in_sync: int = 1,
        elections: bool = False,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create a monitor. `note` receives one line per committed change of a partition.

        With `elections`, the metadata log contains the election of each leader. Hand-written logs may have none.
        """
        self.violations: list[str] = []
        self.producers_expire = False
        self.future_timestamps = False
        self.counters: dict[str, int] = {}
        self.hosts: dict[int, HostLogs] = {}
        self.written_at: dict[bytes, int] = {}
        self.aborts_at: list[tuple[str, int]] = []
        self.committed: dict[Partition, CommittedLog] = {}
        self.late_markers: dict[MarkerKey, None] = {}
        """Markers that the network delayed."""
        self.ended_late: dict[bytes, None] = {}
        """Values of transactions that a delayed marker ended: see `Evidence.exposed_transactions`."""
        self._root = root
        self._topics = (topic, TABLE, *TENANT_TOPICS)
        self._clock = clock
        self._note = note
        self._brokers = brokers
        self._min_in_sync = min_in_sync
        self._known: Known = {}
        self._by_value: dict[bytes, list[Batch]] = {}
        """By first value: all batches that begin with it. `acknowledged` uses it."""
        self._holders: dict[int, dict[int, None]] = {}
        self._epochs: dict[tuple[Partition, int, int], int] = {}
        self._checked_leaders: dict[tuple[Partition, int], None] = {}
        self.controllers: dict[int, int] = {}
        """By epoch of the metadata log: the broker that wrote in it first."""
        self._data_lost: dict[int, None] = {}
        self.is_up: Callable[[int], bool] = lambda _: False
        """Returns True if the broker is registered and its disk has failed no operation since its start."""
        self._deleted: dict[Partition, None] = {}
        """Partitions of deleted topics: their leaders may write until they receive the deletion."""
        self._flush = flush
        self._elections = elections
        self._coordinators: dict[tuple[int, int], CoordinatorModel] = {}
        self._metadata = MetadataWatch(self.hosts, voters, self._on_change)
        self.groups = GroupWatch(self, clock)
        required = min_in_sync if brokers > 1 else 1
        self._markers = MarkerWatch(self, commit_delays, flush=flush, required=required)
        self.compaction = CompactionWatch(self, commit_delays, required=required)

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by

    # ---- hosts ------------------------------------------------------------------------------------------------------

    def watcher(self, number: int, medium: Medium) -> HostLogs:
        """Return the watcher of the disk of a host."""
        host = self.hosts.get(number)
        if host is None:
            host = self.hosts[number] = HostLogs(
                number, medium, self._root, self._is_watched, self._known, self._on_batch, self.violations
            )
            host.truncated = self._on_truncated
            host.metadata_synced = self.on_metadata
            self.compaction.watch(host)
        return host

    def _is_watched(self, topic: str) -> bool:
        return topic in {*self._topics, TRANSACTION_STATE, CONSUMER_OFFSETS, METADATA}

    def reload(self, number: int, medium: Medium) -> None:
        """Read the logs of a host again from its disk.

        A crash within a write can leave whole batches that `HostLogs` was not notified of. The host holds them, too.
        """
        if number in self.hosts:
            self.hosts[number].reload(medium)
            for log in self.hosts[number].logs.values():
                for placed in log.placed:
                    self._holders.setdefault(id(placed.batch), {})[number] = None

    def lost_data(self, number: int, medium: Medium) -> None:
        """Handle lost data on a disk.

        Leaders are first checked with the log before the loss: their last responses may still be in transit. A broker
        that has lost data before, and is not in sync since, is not: it can be elected while it is down.
        """
        for place, state in self.metadata.partitions.items():
            if state.leader == number and number in self.hosts and number not in self._data_lost:
                self._check_leader(place, number, state.leader_epoch)
        self._data_lost[number] = None
        self.reload(number, medium)

    def clear_losses(self) -> None:
        """Check all responses of a broker again that lost data, and is now in sync with all its partitions.

        After the loss, its log may be shorter than the high watermark and the last stable offset of earlier responses,
        which may still be in transit. Since it is in sync:

        1. The log holds everything below the high watermark of its leader (the condition to join an ISR). Committed
           offsets do not decrease, so it also holds everything below the offsets of all earlier responses.
        2. An earlier last stable offset was not above the high watermark of its time. All markers below that are
           committed, so the log has them, and the same transactions are complete.

        The ISR is evidence only after the broker has registered again: before, it may contain the broker from the time
        before the loss. `is_up` is True from the end of the registration.
        """
        for number in list(self._data_lost):
            states = self.metadata.partitions.values()
            in_sync = all(number in state.isr for state in states if number in state.replicas)
            if in_sync and self.is_up(number):
                del self._data_lost[number]
                self.count("data loss repaired")

    def before_crash(self, number: int) -> None:
        for index in self.coordinator_indexes():
            if (
                self.authoritative_host((TRANSACTION_STATE, index)) == number
                and self.coordinator(number, index).prepared
            ):
                self.count("kill between prepare and complete")
                return

    # authoritative logs

    @property
    def metadata(self) -> MetadataModel:
        return self._metadata.model

    def authoritative_host(self, partition: Partition) -> int:
        """Return the host with the authoritative log of the partition: the leader, or without a leader the host with
        the longest log.
        """
        state = self.metadata.partitions.get(partition)
        if self._brokers > 1 and state is not None and state.leader != NO_LEADER and state.leader in self.hosts:
            return state.leader
        findings, best = min(self.hosts), (-1, -1)
        for number, host in self.hosts.items():
            log = host.logs.get(partition)
            if log is not None and log.placed:
                rank = (log.placed[-1].batch.leader_epoch, log.end)
                if rank > best:
                    findings, best = number, rank
        return findings

    def is_deposed(self, partition: Partition, number: int) -> bool:
        """Return True if the host is not the leader by the last committed metadata, whatever the host itself knows."""
        state = self.metadata.partitions.get(partition)
        return state is not None and state.leader != number

    def log(self, partition: Partition) -> ReplicaLog:
        return self.hosts[self.authoritative_host(partition)].log(partition)

    @property
    def partitions(self) -> dict[Partition, PartitionModel]:
        """By written data partition: the model of its authoritative log."""
        places = {place: None for host in self.hosts.values() for place in host.logs if place[0] in self._topics}
        return {place: self.log(place).model() for place in sorted(places)}

    def coordinator_indexes(self) -> list[int]:
        return sorted({i for host in self.hosts.values() for topic, i in host.logs if topic == TRANSACTION_STATE})

    @property
    def coordinators(self) -> dict[int, CoordinatorModel]:
        return {
            index: self.coordinator(self.authoritative_host((TRANSACTION_STATE, index)), index)
            for index in self.coordinator_indexes()
        }

    def coordinator(self, number: int, index: int) -> CoordinatorModel:
        """Return the model of the coordinator's log on that host so far."""
        log = self.hosts[number].log((TRANSACTION_STATE, index))
        model = self._coordinators.get((number, index))
        if model is None or model.log is not log or model.truncations != log.truncations:
            model = self._coordinators[number, index] = CoordinatorModel(log)
        return model.up_to_date()

    def stable_bound(self, partition: Partition, number: int) -> int:
        """Return the highest last stable offset that a response of that host may contain now.

        Return -1 after data loss on its disk, until it is in sync again (`clear_losses`).
        """
        if self._brokers > 1 and number in self._data_lost:
            return -1
        host = self.hosts.get(number)
        return host.last_log(partition).model().stable_end if host is not None else 0

    def holders_of(self, partition: Partition, number: int, offset: int) -> int:
        """Return the number of hosts that ever held the batch that this host has at the offset."""
        batch = self.hosts[number].log(partition).find(offset)
        return max(1, self.holders_of_batch(batch))

    def holders_of_batch(self, batch: Batch | None) -> int:
        return len(self._holders.get(id(batch), {}))

    # responses to clients

    def advertised(self, partition: Partition, number: int, high_watermark: int) -> None:
        """I12: the high watermark in a response is at most the log end that every in-sync replica has reached.

        A broker that lost data is not checked until it is in sync again (`clear_losses`).
        """
        if self._brokers == 1 or number not in self.hosts:
            return
        log = self.hosts[number].last_log(partition)
        committed = self.committed.setdefault(partition, CommittedLog())
        state = self.metadata.partitions.get(partition)
        epoch = NO_LEADER_EPOCH if state is None else state.leader_epoch
        if not committed.extend(log, high_watermark, epoch) and number not in self._data_lost:
            self.violations.append(
                f"I12 {partition}: broker {number} returned high watermark {high_watermark}, its log ends at {log.end}"
            )
        if state is not None and state.leader == number:
            self._check_leader(partition, number, state.leader_epoch)
        for member in state.isr if state is not None else ():
            held = self.hosts[member].log(partition).end_ever if member in self.hosts else 0
            if held < high_watermark and member not in self._data_lost:
                self.violations.append(
                    f"I12 {partition}: broker {number} returned high watermark {high_watermark}, broker {member} "
                    f"of the ISR holds {held} at most"
                )

    def acknowledged(self, number: int, partition: Partition, offset: int, value: bytes) -> None:
        """I12: with acks=all, at least min.insync.replicas hosts held the batch that begins with `value`.

        A resent batch may have been written several times, by leaders of different epochs.
        """
        batches = [batch for batch in self._by_value.get(value, ()) if batch.base_offset == offset]
        if self._brokers == 1 or not batches:
            return  # I1 reports a batch that was never written
        own = [batch for batch in batches if number in self._holders[id(batch)]]
        holders = max((self.holders_of_batch(batch) for batch in own), default=0)
        if holders < self._min_in_sync:
            self.violations.append(
                f"I12 {partition}: offset {offset} was acknowledged by broker {number} while {holders} held it, "
                f"not {self._min_in_sync}"
            )
        if self._flush and partition[0] != TABLE:
            self._check_durable(number, partition, offset)

    def _check_durable(self, number: int, partition: Partition, offset: int) -> None:
        """I12: if each record is flushed, min.insync.replicas hosts have flushed an acknowledged record.

        A host that lost data counts as one of them until it is in sync again.
        """
        durable = [
            host
            for host, logs in self.hosts.items()
            if host in self._data_lost or (partition in logs.logs and logs.durable_end(partition) > offset)
        ]
        if len(durable) < self._min_in_sync:
            self.violations.append(
                f"I12 {partition}: offset {offset} was acknowledged by broker {number} while it was durable on "
                f"{durable}, not on {self._min_in_sync} brokers"
            )

    # appends

    def _on_batch(self, host: HostLogs, partition: Partition, batch: Batch, base: int, is_new: bool) -> None:
        self._holders.setdefault(id(batch), {})[host.number] = None
        if partition[0] == METADATA:
            if is_new and self._brokers > 1:
                self._check_epoch(host.number, partition, batch)
                self._check_controller(host.number, batch.leader_epoch)
            return
        if not is_new:
            return
        if self._brokers > 1:
            self._check_epoch(host.number, partition, batch)
            self._check_leader(partition, host.number, batch.leader_epoch)
            self._check_election(partition, host.number, batch.leader_epoch)
        if partition[0] in COORDINATED:
            try:
                self._on_coordinator_batch(host, partition, batch)
            except (ValueError, IndexError, struct.error) as error:
                self.violations.append(
                    f"I17 {partition}: broker {host.number} wrote a record that no coordinator can load: {error}"
                )
        if partition[0] == TRANSACTION_STATE:
            return
        if batch.is_control and batch.producer_id >= 0:
            marker = host.log(partition).model().markers[-1]
            self._markers.check(partition, batch, marker)
            if marker.first_offset is not None and marker.first_offset < base:
                self.count("segment roll inside a transaction")
        elif partition[0] in self._topics and batch.records and not batch.is_control:
            value = batch.values[0]
            self.written_at[value] = self._clock()
            self._by_value.setdefault(value, []).append(batch)

    def _on_coordinator_batch(self, host: HostLogs, partition: Partition, batch: Batch) -> None:
        if partition[0] == CONSUMER_OFFSETS:
            self.groups.on_batch(host, partition, batch)
            return
        entries = [entry for entry in read_entries([batch]) if not entry.removed]
        self.aborts_at.extend(
            (entry.transactional_id, self._clock()) for entry in entries if entry.state == PREPARE_ABORT
        )
        self._markers.decided(batch, entries)

    def _check_epoch(self, number: int, partition: Partition, batch: Batch) -> None:
        """I11, I12: one leader writes per epoch, so an offset has one content per epoch."""
        key = (partition, batch.leader_epoch, batch.base_offset)
        if self._epochs.setdefault(key, batch.crc) != batch.crc:
            what = "I12 two controllers in one term" if partition[0] == METADATA else "I11 two leaders in one epoch"
            self.violations.append(
                f"{what}: {partition} epoch {batch.leader_epoch} offset {batch.base_offset} is written differently "
                f"by broker {number}"
            )

    def _check_controller(self, number: int, epoch: int) -> None:
        """I12: one controller writes per epoch. A batch that no host had before is written by the controller."""
        first = self.controllers.setdefault(epoch, number)
        if first != number:
            self.violations.append(f"I12 two controllers in one term: brokers {first} and {number} write in {epoch}")

    def _check_election(self, partition: Partition, number: int, epoch: int) -> None:
        """I12: a leader acts after its election is flushed on a majority of the voters.

        Otherwise a power cut of some voters revokes the election, and its epoch can be given to another leader.
        """
        state = self.metadata.partitions.get(partition)
        elected = -1 if state is None else state.leader_epoch
        if self._elections and partition not in self._deleted and elected < epoch:
            self.violations.append(
                f"I12 {partition}: broker {number} leads in epoch {epoch} before its election is durable"
            )

    def _on_truncated(self, host: HostLogs, partition: Partition, lost: int) -> None:
        if self._brokers > 1:
            self.count("metadata log truncated" if partition[0] == METADATA else "log truncated")

    # ---- I11, I12 ---------------------------------------------------------------------------------------------------

    def on_metadata(self) -> None:
        """Apply records of the metadata log after a flush on some voter."""
        terms = len(self.metadata.terms)
        self._metadata.refresh()
        self.clear_losses()
        if terms and len(self.metadata.terms) > terms:
            self.count("controller election")

    def _on_change(self, change: Change) -> None:
        before, after, place = change.before, change.after, change.place
        self._note(f"{place[0]}-{place[1]} {after}")
        if after is None:
            self._deleted[place] = None
        if after is None or self._brokers == 1:
            return
        if before is not None:
            if after.leader not in {before.leader, NO_LEADER}:
                self.count("leader change")
                if place[0] in COORDINATED:
                    self.compaction.loads(place, after.leader)
                if place[0] == TRANSACTION_STATE and self._any_prepared(place[1]):
                    self.count("coordinator fail-over between prepare and complete")
                if place[0] == CONSUMER_OFFSETS and self.groups.any_pending(place[1]):
                    self.count("group coordinator fail-over with offsets pending")
            if set(after.isr) - set(before.isr):
                self.count("ISR expanded")
            if set(before.isr) - set(after.isr):
                self.count("ISR shrunk")
            if (before.adding or before.removing) and not (after.adding or after.removing):
                self.count("reassignment completed")
        if after.leader != NO_LEADER and after.leader not in after.isr:
            self.violations.append(f"I12 {place}: leader {after.leader} is not in the ISR {after.isr}")

    def _any_prepared(self, index: int) -> bool:
        return any(
            self.coordinator(number, index).prepared
            for number, host in self.hosts.items()
            if (TRANSACTION_STATE, index) in host.logs
        )

    def _check_leader(self, place: Partition, number: int, epoch: int) -> None:
        """I11: on its first action in an epoch, a leader holds all records that were committed before."""
        if (place, epoch) in self._checked_leaders:
            return
        self._checked_leaders[place, epoch] = None
        committed = self.committed.get(place)
        missing = committed.missing_in(self.hosts[number].log(place), epoch) if committed is not None else None
        if missing is not None:
            self.violations.append(
                f"I11 {place}: broker {number} leads in epoch {epoch} without offset {missing.base_offset} (epoch "
                f"{missing.leader_epoch}), which was committed"
            )

    # ---- I16 --------------------------------------------------------------------------------------------------------

    def differences(self, number: int, node: str, partitions: "Partitions") -> list[str]:
        """Compare the state in memory of a broker that has just started with a replay of its files.

        Return the findings.
        """
        findings = []
        for (topic, index), replica in self.hosts[number].logs.items():
            if topic in COORDINATED and self.authoritative_host((topic, index)) == number:
                self.compaction.loads((topic, index), number)
            partition = partitions.get(topic, index) if topic in self._topics else None
            if partition is None or not partition.online:
                continue
            log, model = partition.log, replica.model()
            where = f"I16 {node} {topic}-{index}"
            if log.log_end_offset != model.end and replica.placed:
                findings.append(f"{where}: ends at {log.log_end_offset}, a replay at {model.end}")
                continue
            rows = {
                row.producer_id: SnapshotRow(
                    row.producer_id,
                    row.producer_epoch,
                    row.last_sequence,
                    row.coordinator_epoch,
                    row.current_txn_start_offset,
                )
                for row in log.producers.active()
            }
            expected = expected_rows(model)
            if topic == TABLE:
                accept_removed_batches(rows, expected, expected_rows(replica.left()))
            if self.producers_expire:
                accept_expired(rows, expected)
            stable = stable_end(expected, model.end)
            if log.last_stable_offset > stable:
                findings.append(f"{where}: last stable offset {log.last_stable_offset}, a replay gives {stable}")
            findings.extend(
                f"{where}: producer {producer_id}: {rows.get(producer_id)}, a replay gives {expected.get(producer_id)}"
                for producer_id in {**rows, **expected}
                if rows.get(producer_id) != expected.get(producer_id)
            )
        return findings

    # files

    def surviving_batches(self, partition: Partition, number: int | None = None) -> list[Batch]:
        """Return the batches of the files of a host (default: the authoritative host), by the checkers' own reader."""
        return self.hosts[self.authoritative_host(partition) if number is None else number].batches(partition)
