"""What the checkers judge: the clients' history, and what is left on disk, read by the checkers' own code."""

from dataclasses import dataclass, field

from tests.sim.checkers.batches import Batch
from tests.sim.checkers.coordinator_log import Entry
from tests.sim.checkers.visibility import PartitionModel
from tests.sim.history import History, Partition
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
    whole: list[int]


@dataclass
class Evidence:
    """`lossy` marks a run outside the guarantee: power was lost without flushing, so only the order of what is left can be judged."""

    history: History
    partitions: dict[Partition, PartitionModel]
    coordinators: dict[int, list[Entry]] = field(default_factory=dict)
    late_frames: list[LateFrame] = field(default_factory=list)
    written_at: dict[bytes, int] = field(default_factory=dict)
    """Place in the order of all events at which a leader wrote the batch that begins with this value, for the last time."""
    lossy: bool = False
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
    counters: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by

    def exposed_transactions(self) -> dict[int, None]:
        """Transactions that a late EndTxn, or a late marker, of their own (producer id, epoch) may have ended: the known hole of the classic protocol.

        Such a request names no transaction, so nothing tells it from one of the transaction that runs when it arrives. TV2 closes the hole by
        a new epoch per transaction: there it exposes nothing.
        """
        exposed: dict[int, None] = {}
        for frame in self.late_frames:
            if frame.version >= 5:
                continue
            marker = not frame.transactional_id
            latest = -1
            for number, operations in self.history.transactions().items():
                first = operations[0]
                if (first.producer_id, first.producer_epoch) != (frame.producer_id, frame.producer_epoch):
                    continue
                if first.generation >= TV2 if marker else first.transactional_id != frame.transactional_id:
                    continue
                if operations[-1].completed > frame.clock:
                    exposed[number] = None
                else:
                    latest = number
            if marker and latest >= 0:
                exposed[latest] = None  # it was over for its producer, its own markers were still to come
        return exposed
