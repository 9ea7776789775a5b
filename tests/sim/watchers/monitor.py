"""Watches the disks of all nodes from outside while they run, with the checkers' own eyes.

Some promises can be judged only at the moment: that a marker follows a *committed* prepare record, that nobody is told of an offset beyond what is stable,
that a new leader holds what was acknowledged. Each write to a log is parsed here as it happens; after a crash the logs are read again from what it left.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.checkers.batches import Batch
from tests.sim.checkers.committed import CommittedLog
from tests.sim.checkers.coordinator_log import PREPARE_ABORT, CoordinatorModel, read_entries
from tests.sim.checkers.evidence import SnapshotRow
from tests.sim.checkers.metadata_log import NO_LEADER, Change, MetadataModel
from tests.sim.checkers.recovery import expected_rows, forgive_gone, stable_end
from tests.sim.checkers.replica_log import ReplicaLog
from tests.sim.checkers.visibility import PartitionModel
from tests.sim.environment.medium import Medium
from tests.sim.history import Partition
from tests.sim.watchers.compaction import CompactionWatch
from tests.sim.watchers.groups import GroupWatch
from tests.sim.watchers.host_logs import HostLogs, Known
from tests.sim.watchers.markers import MarkerKey, MarkerWatch
from tests.sim.watchers.metadata import MetadataWatch
from tests.sim.world import CONSUMER_OFFSETS, COORDINATED, METADATA, TABLE, TRANSACTION_STATE

if TYPE_CHECKING:
    from odradek.broker.partition.registry import Partitions
    from tests.sim.watchers.commit_delays import GateKeeper


class Monitor:
    """Live models of all partitions of all nodes, and the violations seen on the way."""

    def __init__(
        self,
        root: str,
        topic: str,
        gates: "GateKeeper",
        clock: Callable[[], int],
        *,
        flush: bool,
        brokers: int = 1,
        voters: int = 1,
        min_in_sync: int = 1,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`note` is told, in a line each, what the cluster has agreed on."""
        self.violations: list[str] = []
        self.counters: dict[str, int] = {}
        self.hosts: dict[int, HostLogs] = {}
        self.written_at: dict[bytes, int] = {}
        self.aborts_at: list[tuple[str, int]] = []
        self.committed: dict[Partition, CommittedLog] = {}
        self.late_markers: dict[MarkerKey, None] = {}
        """Those that were held back on their way."""
        self.ended_late: dict[bytes, None] = {}
        """The values that such a marker has ended: see `Evidence.exposed_transactions`."""
        self._root = root
        self._topics = (topic, TABLE)
        self._clock = clock
        self._note = note
        self._brokers = brokers
        self._min_in_sync = min_in_sync
        self._known: Known = {}
        self._by_value: dict[bytes, list[Batch]] = {}
        """All that begin with it: see `acknowledged`."""
        self._holders: dict[int, dict[int, None]] = {}
        self._epochs: dict[tuple[Partition, int, int], int] = {}
        self._judged: dict[tuple[Partition, int], None] = {}
        self._data_lost: dict[int, None] = {}
        self._coordinators: dict[tuple[int, int], CoordinatorModel] = {}
        self._metadata = MetadataWatch(self.hosts, voters, self._on_change)
        self.groups = GroupWatch(self, clock)
        required = min_in_sync if brokers > 1 else 1
        self._markers = MarkerWatch(self, gates, flush=flush, required=required)
        self.compaction = CompactionWatch(self, gates, required=required)

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by

    # -- hosts

    def watcher(self, number: int, medium: Medium) -> HostLogs:
        """Who watches the disk of a host."""
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
        """Read the logs of a host again from its disk."""
        if number in self.hosts:
            self.hosts[number].reload(medium)

    def lost_data(self, number: int, medium: Medium) -> None:
        """The disk has forgotten something. Who leads is judged by what it held until now: its last answers may still be on their way."""
        for place, state in self.metadata.partitions.items():
            if state.leader == number and number in self.hosts:
                self._judge_leader(place, number, state.leader_epoch)
        self._data_lost[number] = None
        self.reload(number, medium)

    def before_crash(self, number: int) -> None:
        for index in self.coordinator_indexes():
            if self.counting((TRANSACTION_STATE, index)) == number and self.coordinator(number, index).prepared:
                self.count("kill between prepare and complete")
                return

    # -- what counts

    @property
    def metadata(self) -> MetadataModel:
        return self._metadata.model

    def counting(self, partition: Partition) -> int:
        """The host whose log of the partition is the one that counts: the leader's, without one that of the longest."""
        state = self.metadata.partitions.get(partition)
        if self._brokers > 1 and state is not None and state.leader != NO_LEADER and state.leader in self.hosts:
            return state.leader
        found, best = min(self.hosts), (-1, -1)
        for number, host in self.hosts.items():
            log = host.logs.get(partition)
            if log is not None and log.placed:
                rank = (log.placed[-1].batch.leader_epoch, log.end)
                if rank > best:
                    found, best = number, rank
        return found

    def log(self, partition: Partition) -> ReplicaLog:
        return self.hosts[self.counting(partition)].log(partition)

    @property
    def partitions(self) -> dict[Partition, PartitionModel]:
        """Of each data partition that has been written, the model of the log that counts."""
        places = {place: None for host in self.hosts.values() for place in host.logs if place[0] in self._topics}
        return {place: self.log(place).model() for place in sorted(places)}

    def coordinator_indexes(self) -> list[int]:
        return sorted({i for host in self.hosts.values() for topic, i in host.logs if topic == TRANSACTION_STATE})

    @property
    def coordinators(self) -> dict[int, CoordinatorModel]:
        return {
            index: self.coordinator(self.counting((TRANSACTION_STATE, index)), index)
            for index in self.coordinator_indexes()
        }

    def coordinator(self, number: int, index: int) -> CoordinatorModel:
        """What the coordinator's log on that host says so far."""
        log = self.hosts[number].log((TRANSACTION_STATE, index))
        model = self._coordinators.get((number, index))
        if model is None or model.log is not log or model.cuts != log.cuts:
            model = self._coordinators[number, index] = CoordinatorModel(log)
        return model.up_to_date()

    def stable_bound(self, partition: Partition, number: int) -> int:
        """No reader of that host may be told of a last stable offset beyond this one, now; -1 where its disk has forgotten."""
        if self._brokers > 1 and number in self._data_lost:
            return -1
        host = self.hosts.get(number)
        return host.last_log(partition).model().stable_end if host is not None else 0

    def holders_of(self, partition: Partition, number: int, offset: int) -> int:
        """How many hosts have ever held the batch that this host has at the offset."""
        batch = self.hosts[number].log(partition).find(offset)
        return max(1, self.holders_of_batch(batch))

    def holders_of_batch(self, batch: Batch | None) -> int:
        return len(self._holders.get(id(batch), {}))

    # -- what clients are told

    def advertised(self, partition: Partition, number: int, high_watermark: int) -> None:
        """I12: nobody is told of a watermark beyond what every replica in sync has held."""
        if self._brokers == 1 or number not in self.hosts:
            return
        log = self.hosts[number].last_log(partition)
        committed = self.committed.setdefault(partition, CommittedLog())
        if not committed.extend(log, high_watermark) and number not in self._data_lost:
            self.violations.append(
                f"I12 {partition}: broker {number} says high watermark {high_watermark}, its log ends at {log.end}"
            )
        state = self.metadata.partitions.get(partition)
        if state is not None and state.leader == number:
            self._judge_leader(partition, number, state.leader_epoch)
        for member in state.isr if state is not None else ():
            held = self.hosts[member].log(partition).end_ever if member in self.hosts else 0
            if held < high_watermark and member not in self._data_lost:
                self.violations.append(
                    f"I12 {partition}: broker {number} says high watermark {high_watermark}, broker {member} of the ISR holds {held} at most"
                )

    def acknowledged(self, number: int, partition: Partition, offset: int, value: bytes) -> None:
        """I12: acks=all means that min.insync.replicas, at least, have held the batch that the broker means, which begins with `value`.

        What is sent again may be written more than once before it is acknowledged, by leaders of different epochs.
        """
        batches = [batch for batch in self._by_value.get(value, ()) if batch.base_offset == offset]
        if self._brokers == 1 or not batches:
            return  # where nobody ever wrote it, I1 will say so
        own = [batch for batch in batches if number in self._holders[id(batch)]]
        holders = max((self.holders_of_batch(batch) for batch in own), default=0)
        if holders < self._min_in_sync:
            self.violations.append(
                f"I12 {partition}: offset {offset} was acknowledged by broker {number} while {holders} held it, not {self._min_in_sync}"
            )

    # -- what is written

    def _on_batch(self, host: HostLogs, partition: Partition, batch: Batch, base: int, born: bool) -> None:
        self._holders.setdefault(id(batch), {})[host.number] = None
        if partition[0] == METADATA:
            if born and self._brokers > 1:
                self._judge_epoch(host.number, partition, batch)
            return
        if not born:
            return
        if self._brokers > 1:
            self._judge_epoch(host.number, partition, batch)
            self._judge_leader(partition, host.number, batch.leader_epoch)
        if partition[0] == TRANSACTION_STATE:
            entries = [entry for entry in read_entries([batch]) if not entry.removed]
            self.aborts_at.extend(
                (entry.transactional_id, self._clock()) for entry in entries if entry.state == PREPARE_ABORT
            )
            self._markers.decided(batch, entries)
            return
        if partition[0] == CONSUMER_OFFSETS:
            self.groups.on_batch(host, partition, batch)
        if batch.is_control and batch.producer_id >= 0:
            marker = host.log(partition).model().markers[-1]
            self._markers.judge(partition, batch, marker)
            if marker.first_offset is not None and marker.first_offset < base:
                self.count("segment roll inside a transaction")
        elif partition[0] in self._topics and batch.records and not batch.is_control:
            value = batch.values[0]
            self.written_at[value] = self._clock()
            self._by_value.setdefault(value, []).append(batch)

    def _judge_epoch(self, number: int, partition: Partition, batch: Batch) -> None:
        """I11, I12: in one epoch one leader writes, so one offset has one content."""
        key = (partition, batch.leader_epoch, batch.base_offset)
        if self._epochs.setdefault(key, batch.crc) != batch.crc:
            what = "I12 two controllers in one term" if partition[0] == METADATA else "I11 two leaders in one epoch"
            self.violations.append(
                f"{what}: {partition} epoch {batch.leader_epoch} offset {batch.base_offset} is written differently by broker {number}"
            )

    def _on_truncated(self, host: HostLogs, partition: Partition, lost: int) -> None:
        if self._brokers > 1:
            self.count("metadata log truncated" if partition[0] == METADATA else "log truncated")

    # -- I11, I12

    def on_metadata(self) -> None:
        """Something became durable in a metadata log."""
        terms = len(self.metadata.terms)
        self._metadata.refresh()
        if terms and len(self.metadata.terms) > terms:
            self.count("controller election")

    def _on_change(self, change: Change) -> None:
        before, after, place = change.before, change.after, change.place
        self._note(f"{place[0]}-{place[1]} {after}")
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

    def _judge_leader(self, place: Partition, number: int, epoch: int) -> None:
        """I11: who acts as the leader for the first time in an epoch holds all that was ever said to be committed up to then."""
        if (place, epoch) in self._judged:
            return
        self._judged[place, epoch] = None
        committed = self.committed.get(place)
        missing = committed.missing_in(self.hosts[number].log(place), epoch) if committed is not None else None
        if missing is not None:
            self.violations.append(
                f"I11 {place}: broker {number} leads in epoch {epoch} without offset {missing.base_offset} (epoch {missing.leader_epoch}), which was committed"
            )

    # -- I16

    def differences(self, number: int, node: str, partitions: "Partitions") -> list[str]:
        """What the node that has just come up holds in memory, against a replay of its files."""
        found = []
        for (topic, index), replica in self.hosts[number].logs.items():
            if topic in COORDINATED and self.counting((topic, index)) == number:
                self.compaction.loads((topic, index), number)
            partition = partitions.get(topic, index) if topic in self._topics else None
            if partition is None or not partition.online:
                continue
            log, model = partition.log, replica.model()
            where = f"I16 {node} {topic}-{index}"
            if log.log_end_offset != model.end and replica.placed:
                found.append(f"{where}: ends at {log.log_end_offset}, a replay at {model.end}")
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
                forgive_gone(rows, expected, expected_rows(replica.left()))
            stable = stable_end(expected, model.end)
            if log.last_stable_offset > stable:
                found.append(f"{where}: last stable offset {log.last_stable_offset}, a replay gives {stable}")
            found.extend(
                f"{where}: producer {producer_id}: {rows.get(producer_id)}, a replay gives {expected.get(producer_id)}"
                for producer_id in {**rows, **expected}
                if rows.get(producer_id) != expected.get(producer_id)
            )
        return found

    # -- the files

    def surviving_batches(self, partition: Partition, number: int | None = None) -> list[Batch]:
        """What the files of a host hold (of the one that counts, unless it is named), by the checkers' own reading."""
        return self.hosts[self.counting(partition) if number is None else number].batches(partition)
