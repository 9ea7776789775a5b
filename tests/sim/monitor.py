"""Watches the node's disk from outside while it runs, with the checkers' own eyes.

Some promises can be judged only at the moment: that a marker follows a *committed* prepare record, that nobody is told of an offset beyond what is stable.
Each write to a log is parsed here as it happens; after a crash the models are read again from what the crash left.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.sim.checkers.batches import Batch, Unreadable, read_batches
from tests.sim.checkers.coordinator_log import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Entry,
    read_entries,
)
from tests.sim.checkers.evidence import SnapshotRow
from tests.sim.checkers.recovery import expected_rows
from tests.sim.checkers.visibility import PartitionModel
from tests.sim.history import Partition
from tests.sim.medium import Directory, Medium

if TYPE_CHECKING:
    from broker.partitions import Partitions
    from tests.sim.gate import GateKeeper

LOG_PATH: Final = re.compile(r"^(?P<root>.*)/(?P<topic>[^/]+)-(?P<index>\d+)/(?P<base>\d{20})\.log$")
TRANSACTION_STATE: Final = "__transaction_state"


class CoordinatorModel:
    """What the log of one `__transaction_state` partition says so far."""

    def __init__(self) -> None:
        self.end = 0
        self.entries: list[Entry] = []
        self.latest: dict[str, Entry] = {}
        self.by_producer: dict[int, Entry] = {}

    def add(self, batch: Batch) -> None:
        self.end = batch.last_offset + 1
        for entry in read_entries([batch]):
            self.entries.append(entry)
            if entry.removed:
                self.latest.pop(entry.transactional_id, None)
            else:
                self.latest[entry.transactional_id] = entry
                self.by_producer[entry.producer_id] = entry

    @property
    def prepared(self) -> list[Entry]:
        return [entry for entry in self.latest.values() if entry.state in {PREPARE_COMMIT, PREPARE_ABORT}]


class Monitor:
    """Live models of all partitions of one node, and the violations seen on the way."""

    def __init__(
        self, medium: Medium, root: str, topic: str, gates: "GateKeeper", clock: Callable[[], int], *, flush: bool
    ) -> None:
        self.violations: list[str] = []
        self.counters: dict[str, int] = {}
        self.partitions: dict[Partition, PartitionModel] = {}
        self.coordinators: dict[int, CoordinatorModel] = {}
        self.written_at: dict[bytes, int] = {}
        self.aborts_at: list[tuple[str, int]] = []
        self._served: dict[tuple[Partition, int, int], None] = {}
        self._medium = medium
        self._root = root
        self._topic = topic
        self._gates = gates
        self._clock = clock
        self._flush = flush

    def stable_bound(self, partition: Partition) -> int:
        """No reader may be told of a last stable offset beyond this one, now."""
        model = self.partitions.get(partition)
        return model.stable_end if model is not None else 0

    def count(self, name: str) -> None:
        self.counters[name] = self.counters.get(name, 0) + 1

    def on_write(self, path: str, offset: int, data: bytes) -> None:
        match = LOG_PATH.match(path)
        if match is None or match["root"] != self._root or match["topic"] not in {self._topic, TRANSACTION_STATE}:
            return
        partition = (match["topic"], int(match["index"]))
        try:
            batches = list(read_batches(data))
        except Unreadable as error:
            self.violations.append(f"{path}: {len(data)} bytes were written at {offset} that are no batches: {error}")
            return
        for batch in batches:
            if partition[0] == TRANSACTION_STATE:
                self._coordinator_batch(partition[1], batch)
            else:
                self._data_batch(partition, batch, int(match["base"]))

    # -- coordinator

    def _coordinator_batch(self, index: int, batch: Batch) -> None:
        model = self.coordinators.get(index)
        if model is None:
            model = self.coordinators[index] = CoordinatorModel()
        if batch.base_offset != model.end:
            self.violations.append(f"{TRANSACTION_STATE}-{index}: offset {batch.base_offset} follows {model.end - 1}")
        model.add(batch)
        self.aborts_at.extend(
            (entry.transactional_id, self._clock())
            for entry in read_entries([batch])
            if entry.state == PREPARE_ABORT and not entry.removed
        )

    def _prepare_of(self, producer_id: int) -> tuple[int, Entry] | None:
        for index, model in self.coordinators.items():
            entry = model.by_producer.get(producer_id)
            if entry is not None:
                return index, entry
        return None

    def _judge_marker(self, partition: Partition, batch: Batch) -> None:
        """I14: the coordinator decided this, the decision names this partition, and it was committed before the marker was written."""
        commit = batch.control_type == 1
        where = f"I14 {partition[0]}-{partition[1]} offset {batch.base_offset}: {'COMMIT' if commit else 'ABORT'} of producer {batch.producer_id}"
        found = self._prepare_of(batch.producer_id)
        if found is None:
            self.violations.append(f"{where} without any coordinator entry")
            return
        index, entry = found
        served = (partition, index, entry.offset)
        if served in self._served:
            self.count("marker retry")
        self._served[served] = None
        expected = (PREPARE_COMMIT, COMPLETE_COMMIT) if commit else (PREPARE_ABORT, COMPLETE_ABORT)
        if entry.state not in expected:
            self.violations.append(f"{where}: the coordinator's state is {entry.state}")
        elif entry.producer_epoch != batch.producer_epoch and entry.state in {PREPARE_COMMIT, PREPARE_ABORT}:
            self.violations.append(f"{where}: epoch {batch.producer_epoch}, the coordinator's {entry.producer_epoch}")
        elif entry.state in {PREPARE_COMMIT, PREPARE_ABORT} and partition not in entry.partitions:
            self.violations.append(f"{where}: not a partition of the transaction {sorted(entry.partitions)}")
        elif not self._is_committed(index, entry.offset):
            self.violations.append(f"{where}: the prepare record at {entry.offset} is not committed")

    def _is_committed(self, index: int, offset: int) -> bool:
        if self._gates.committed((TRANSACTION_STATE, index)) <= offset:
            return False
        return not self._flush or self.durable_end((TRANSACTION_STATE, index)) > offset

    def durable_end(self, partition: Partition) -> int:
        """The end of what a power cut would leave for certain."""
        end = 0
        directory = self._medium.directory(f"{self._root}/{partition[0]}-{partition[1]}")
        for name in sorted(directory.durable):
            inode = directory.durable[name]
            if name.endswith(".log") and not isinstance(inode, Directory):
                try:
                    for batch in read_batches(bytes(inode.durable)):
                        end = batch.last_offset + 1
                except Unreadable:
                    return end
        return end

    # -- data

    def _data_batch(self, partition: Partition, batch: Batch, base: int) -> None:
        model = self.partitions.get(partition)
        if model is None:
            model = self.partitions[partition] = PartitionModel()
        if batch.is_control and batch.producer_id >= 0:
            self._judge_marker(partition, batch)
            producer = model.producers.get(batch.producer_id)
            if producer is not None and producer.open_since is not None and producer.open_since < base:
                self.count("segment roll inside a transaction")
        model.add(batch)
        if not batch.is_control and batch.records:
            value = batch.records[0][1]
            assert value is not None
            self.written_at[value] = self._clock()

    # -- I16

    def differences(self, node: str, partitions: "Partitions") -> list[str]:
        """What the node that has just come up holds in memory, against a replay of its files."""
        found = []
        for (topic, index), model in self.partitions.items():
            partition = partitions.get(topic, index)
            if partition is None or not partition.online:
                continue
            log = partition.log
            where = f"I16 {node} {topic}-{index}"
            if log.log_end_offset != model.end:
                found.append(f"{where}: ends at {log.log_end_offset}, a replay at {model.end}")
                continue
            if log.last_stable_offset > model.stable_end:
                found.append(f"{where}: last stable offset {log.last_stable_offset}, a replay gives {model.stable_end}")
            rows = {
                row.producer_id: SnapshotRow(
                    row.producer_id,
                    row.producer_epoch,
                    row.last_sequence,
                    row.coordinator_epoch,
                    row.current_txn_start_offset,
                )
                for row in log.active_producers()
            }
            expected = expected_rows(model)
            found.extend(
                f"{where}: producer {producer_id}: {rows.get(producer_id)}, a replay gives {expected.get(producer_id)}"
                for producer_id in {**rows, **expected}
                if rows.get(producer_id) != expected.get(producer_id)
            )
        return found

    # -- crashes

    def before_crash(self) -> None:
        if any(model.prepared for model in self.coordinators.values()):
            self.count("kill between prepare and complete")

    def reload(self) -> None:
        """Read the models again from the disk: what a crash left, as far as it can be read."""
        for partition in list(self.partitions):
            self.partitions[partition] = PartitionModel.of(self.surviving_batches(partition))
        for index in list(self.coordinators):
            model = self.coordinators[index] = CoordinatorModel()
            batches, end = self._survivors((TRANSACTION_STATE, index))
            for batch in batches:
                model.add(batch)
            model.end = end

    def surviving_batches(self, partition: Partition) -> list[Batch]:
        """The longest valid prefix of the partition's segments, by the checkers' own reading."""
        return self._survivors(partition)[0]

    def _survivors(self, partition: Partition) -> tuple[list[Batch], int]:
        """The batches of the longest valid prefix, and where the log goes on.

        It begins at the offset that names the first segment: where a power cut has emptied that one, those behind it follow a gap. Only
        where the cleaner works (the coordinator's topic) offsets may be missing, also those before a segment that has lost all records.
        """
        path = f"{self._root}/{partition[0]}-{partition[1]}"
        entry = self._medium.entry(path)
        found: list[Batch] = []
        if not isinstance(entry, Directory):
            return found, 0
        names = [name for name in sorted(entry.live) if name.endswith(".log")]
        end = int(names[0].removesuffix(".log")) if names else 0
        for name in names:
            if partition[0] == TRANSACTION_STATE:
                end = max(end, int(name.removesuffix(".log")))
            size = 0
            data = self._medium.contents(f"{path}/{name}")
            try:
                for batch in read_batches(data, check_crc=True):
                    if batch.base_offset < end or (batch.base_offset > end and partition[0] != TRANSACTION_STATE):
                        return found, end
                    found.append(batch)
                    end = batch.last_offset + 1
                    size += batch.size
            except Unreadable:
                return found, end
            if size < len(data):
                return found, end
        return found, end
