"""Reader of `__transaction_state`: the decisions of the coordinator in order.

Part of the checkers, without code of the broker.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.sim.checkers.batches import Batch
from tests.sim.checkers.fields import Fields
from tests.sim.checkers.replica_log import ReplicaLog

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, FENCE = range(8)
STATE_NAMES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
ALLOWED_BEFORE: Final[dict[int, set[int | None]]] = {
    EMPTY: {None, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    ONGOING: {None, EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT},
    PREPARE_COMMIT: {ONGOING},
    PREPARE_ABORT: {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    COMPLETE_COMMIT: {PREPARE_COMMIT},
    COMPLETE_ABORT: {PREPARE_ABORT},
}


@dataclass(slots=True)
class Entry:
    """One record of the transaction log. `removed` is True for a tombstone."""

    offset: int
    leader_epoch: int
    transactional_id: str
    removed: bool = False
    producer_id: int = -1
    producer_epoch: int = -1
    timeout_ms: int = 0
    state: int = EMPTY
    partitions: frozenset[tuple[str, int]] = frozenset()
    updated_ms: int = -1
    started_ms: int = -1
    previous_producer_id: int = -1
    next_producer_id: int = -1
    next_producer_epoch: int = -1
    client_version: int = 0
    timestamp: int = field(default=-1)

    @property
    def client(self) -> tuple[int, int]:
        """Identity of the next request of the client. A next producer id without an epoch has epoch 0."""
        if self.next_producer_id < 0:
            return self.producer_id, self.producer_epoch
        return self.next_producer_id, max(0, self.next_producer_epoch)


def read_entries(batches: Iterable[Batch]) -> list[Entry]:
    """Return the entries of the batches of one partition, without control batches."""
    entries = []
    for batch in batches:
        if batch.is_control:
            continue
        for index, (key, value) in enumerate(batch.records):
            assert key is not None
            entry = parse_entry(key, value)
            entry.offset = batch.base_offset + index
            entry.leader_epoch = batch.leader_epoch
            entry.timestamp = batch.max_timestamp
            entries.append(entry)
    return entries


def parse_entry(key: bytes, value: bytes | None) -> Entry:
    reader = Fields(key)
    version = reader.number(">h")
    if version != 0:
        raise ValueError(f"transaction log key of version {version}")
    entry = Entry(-1, -1, reader.string(flexible=False))
    if value is None:
        entry.removed = True
        return entry
    reader = Fields(value)
    flexible = reader.number(">h") >= 1
    entry.producer_id = reader.number(">q")
    entry.producer_epoch = reader.number(">h")
    entry.timeout_ms = reader.number(">i")
    entry.state = reader.number(">b")
    partitions: list[tuple[str, int]] = []
    for _ in range(max(0, reader.count(flexible=flexible))):
        topic = reader.string(flexible=flexible)
        partitions.extend((topic, reader.number(">i")) for _ in range(reader.count(flexible=flexible)))
        if flexible:
            _skip_tags(reader, entry, top=False)
    entry.partitions = frozenset(partitions)
    entry.updated_ms = reader.number(">q")
    entry.started_ms = reader.number(">q")
    if flexible:
        _skip_tags(reader, entry, top=True)
    if reader.position != len(value):
        raise ValueError(f"{len(value) - reader.position} bytes after the entry of {entry.transactional_id}")
    return entry


def _skip_tags(reader: Fields, entry: Entry, *, top: bool) -> None:
    for _ in range(reader.uvarint()):
        tag, size = reader.uvarint(), reader.uvarint()
        end = reader.position + size
        if top and tag == 0:
            entry.previous_producer_id = reader.number(">q")
        elif top and tag == 1:
            entry.next_producer_id = reader.number(">q")
        elif top and tag == 2:
            entry.client_version = reader.number(">h")
        elif top and tag == 3:
            entry.next_producer_epoch = reader.number(">h")
        reader.position = end


def last_states(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return the last entry of each transactional id that was not removed, as a replay of the log does."""
    states: dict[str, Entry] = {}
    for entry in entries:
        if entry.removed:
            states.pop(entry.transactional_id, None)
        else:
            states[entry.transactional_id] = entry
    return states


class CoordinatorModel:
    """State of one partition of `__transaction_state` on one host, from its log so far."""

    def __init__(self, log: ReplicaLog) -> None:
        self.log = log
        self.truncations = log.truncations
        self.entries: list[Entry] = []
        self.latest: dict[str, Entry] = {}
        self.by_producer: dict[int, Entry] = {}
        self._next = 0

    def up_to_date(self) -> "CoordinatorModel":
        """Read the new batches of the log and return self.

        The log must not have been truncated since this model was created.
        """
        placed = self.log.placed
        while self._next < len(placed):
            self._add(placed[self._next].batch)
            self._next += 1
        return self

    def _add(self, batch: Batch) -> None:
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
