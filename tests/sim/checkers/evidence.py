"""Input of the checkers: the history of the clients, and the contents of the disks, read by the checkers' own code."""

from dataclasses import dataclass, field

from tests.sim.checkers.acls import AclEvidence
from tests.sim.checkers.batches import Batch
from tests.sim.checkers.coordinator_log import Entry
from tests.sim.checkers.group_log import Committed, Owned, Place
from tests.sim.checkers.hostile import HostileRequest
from tests.sim.checkers.isolation import TenantEvidence
from tests.sim.checkers.tokens import TokenEvidence
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
    """One partition on all its hosts: the arguments of `checkers.replicas.check_replicas`."""

    what: str
    logs: dict[int, list[Batch]]
    committed: dict[int, int]


@dataclass
class GroupEvidence:
    """State of the groups of a run from the files of `__consumer_offsets`, and the final responses to clients.

    `assignments`: by group, member id and member epoch of the consumer protocol, all assignments ever written.
    """

    copiers: tuple[str, ...]
    places: tuple[Partition, ...]
    topic_id: bytes = b""
    committed: dict[Place, int] = field(default_factory=dict)
    changes: dict[Place, list[Committed]] = field(default_factory=dict)
    assignments: dict[tuple[str, str, int], dict[Owned, None]] = field(default_factory=dict)
    final: list[Operation] = field(default_factory=list)
    begun_anew: list[tuple[str, int]] = field(default_factory=list)
    """Group, and position in the order of all events, at which the group restarted the count of its epochs."""
    ended_late: dict[int, None] = field(default_factory=dict)
    """Producers of the classic transaction protocol whose open transaction was ended by a delayed marker."""
    alone: str = ""
    """The group of a simple consumer, which sets and deletes offsets without being a member."""


@dataclass
class Evidence:
    """History and logs of a run, which the checkers compare.

    `lossy` marks a run outside the guarantee: a power cut lost unflushed data, so the checkers compare only the
    restarted broker with its files.
    """

    history: History
    partitions: dict[Partition, PartitionModel]
    coordinators: dict[int, list[Entry]] = field(default_factory=dict)
    late_frames: list[LateFrame] = field(default_factory=list)
    written_at: dict[bytes, int] = field(default_factory=dict)
    """By first value of a batch: the last position in the order of all events at which a leader wrote the batch."""
    ended_late: dict[bytes, None] = field(default_factory=dict)
    """Values whose classic transaction was ended by the delayed marker of an earlier transaction."""
    lossy: bool = False
    producers_expire: bool = False
    """Brokers may have removed the state of producers without an open transaction."""
    evicts_producers: bool = False
    """The table of producers of a partition is so small that it can be full."""
    compacted: dict[Partition, int] = field(default_factory=dict)
    """Compacted partitions written by clients, with their delete.retention.ms."""
    left: dict[Partition, PartitionModel] = field(default_factory=dict)
    """A replay of the batches that compaction has left, per compacted partition."""
    scan_interval_ms: int = 0
    disturbance_ms: int = 0
    clock_jumped: bool = False
    described_producers: dict[Partition, list[SnapshotRow]] = field(default_factory=dict)
    described_transactions: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    snapshots: dict[Partition, list[tuple[int, list[SnapshotRow]]]] = field(default_factory=dict)
    snapshot_models: dict[tuple[Partition, int], PartitionModel] = field(default_factory=dict)
    replicated: bool = False
    """True for several brokers: a record acknowledged with acks=1 may be lost with its leader."""
    repeaters: frozenset[str] = frozenset()
    """Processes of clients that may resend a written record without a sequence number, or with a new producer epoch."""
    replicas: list[Replicas] = field(default_factory=list)
    groups: GroupEvidence | None = None
    hostile: list[HostileRequest] = field(default_factory=list)
    """Requests of the hostile client."""
    acls: AclEvidence | None = None
    """ACLs of a run with SASL and ACLs. `tenants` has the requests of its hostile tenant."""
    tenants: TenantEvidence | None = None
    tokens: TokenEvidence | None = None
    """Delegation tokens of a run that has them."""
    counters: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by

    def exposed_transactions(self) -> dict[int, None]:
        """Return the classic transactions that a delayed EndTxn or marker of another transaction may have ended.

        This gap is known: the requests of the classic protocol name no transaction. A delayed request with the same
        producer id and epoch therefore ends the transaction that is open when it arrives. TV2 closes the gap with a new
        epoch per transaction (KIP-890). Transactions that a delayed marker ended were recorded when it was written.
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
