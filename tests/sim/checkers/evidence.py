"""What the checkers judge: the clients' history, and what is left on disk, read by the checkers' own code."""

from dataclasses import dataclass, field

from tests.sim.checkers.batches import Batch
from tests.sim.checkers.coordinator_log import Entry
from tests.sim.checkers.group_log import Committed, Owned, Place
from tests.sim.checkers.visibility import PartitionModel
from tests.sim.history import History, Operation, Partition
from tests.sim.world import LateFrame

TV2 = 2


@dataclass(slots=True)
class SnapshotRow:
    """One entry of a producer snapshot file, or of DescribeProducers (then without last_offset)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    coordinator_epoch: int
    open_since: int


@dataclass(slots=True)
class Replicas:
    """One partition on all its hosts: see `checkers.replicas.check_replicas`."""

    what: str
    logs: dict[int, list[Batch]]
    committed: dict[int, int]


@dataclass
class GroupEvidence:
    """What is left of the groups of a run, by the files of `__consumer_offsets`, and what clients were told at the end.

    `said`: by group, member and epoch of the consumer protocol, all that was ever written of what the member had.
    """

    copiers: tuple[str, ...]
    places: tuple[Partition, ...]
    topic_id: bytes = b""
    committed: dict[Place, int] = field(default_factory=dict)
    changes: dict[Place, list[Committed]] = field(default_factory=dict)
    said: dict[tuple[str, str, int], dict[Owned, None]] = field(default_factory=dict)
    final: list[Operation] = field(default_factory=list)
    begun_anew: list[tuple[str, int]] = field(default_factory=list)
    """Group, and place in the order of all events, where it began to count its epochs anew."""
    ended_late: dict[int, None] = field(default_factory=dict)
    """Producers of the classic protocol whose open transaction was ended here by a marker that came late."""
    alone: str = ""
    """The group of a simple consumer: offsets are set and deleted there by who is no member."""


@dataclass
class Evidence:
    """`lossy` marks a run outside the guarantee: power was lost without flushing, so only the order of what is left can be judged."""

    history: History
    partitions: dict[Partition, PartitionModel]
    coordinators: dict[int, list[Entry]] = field(default_factory=dict)
    late_frames: list[LateFrame] = field(default_factory=list)
    written_at: dict[bytes, int] = field(default_factory=dict)
    """Place in the order of all events at which a leader wrote the batch that begins with this value, for the last time."""
    ended_late: dict[bytes, None] = field(default_factory=dict)
    """Values whose classic transaction was ended by a marker of an earlier one that the network had held back."""
    lossy: bool = False
    compacted: dict[Partition, int] = field(default_factory=dict)
    """Partitions whose records have keys, of which the newest count; and for how long a tombstone stays there (ms)."""
    scan_interval_ms: int = 0
    disturbance_ms: int = 0
    clock_jumped: bool = False
    described_producers: dict[Partition, list[SnapshotRow]] = field(default_factory=dict)
    described_transactions: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    snapshots: dict[Partition, list[tuple[int, list[SnapshotRow]]]] = field(default_factory=dict)
    snapshot_models: dict[tuple[Partition, int], PartitionModel] = field(default_factory=dict)
    replicated: bool = False
    """Several brokers: what was acknowledged by the leader alone may be lost with it."""
    repeaters: frozenset[str] = frozenset()
    """Processes of clients that may send a record again without a sequence number, or with one of a new epoch, although it was written."""
    replicas: list[Replicas] = field(default_factory=list)
    groups: GroupEvidence | None = None
    counters: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by

    def exposed_transactions(self) -> dict[int, None]:
        """Transactions that a late EndTxn of their own (producer id, epoch) may have ended, or a late marker has: the known hole of the classic protocol.

        Such a request names no transaction, so nothing tells it from one of the transaction that runs when it arrives. TV2 closes the hole by
        a new epoch per transaction: there it exposes nothing. What a marker has ended was seen when it was written.
        """
        exposed: dict[int, None] = {}
        transactions = self.history.transactions()
        if self.ended_late:
            for number, operations in transactions.items():
                if operations[0].generation < TV2 and any(
                    value in self.ended_late for operation in operations for value in operation.values
                ):
                    exposed[number] = None
        for frame in self.late_frames:
            if frame.version >= 5 or not frame.transactional_id:
                continue
            identity = (frame.transactional_id, frame.producer_id, frame.producer_epoch)
            for number, operations in transactions.items():
                first = operations[0]
                mine = (first.transactional_id, first.producer_id, first.producer_epoch)
                if mine == identity and operations[-1].completed > frame.clock:
                    exposed[number] = None
        return exposed
