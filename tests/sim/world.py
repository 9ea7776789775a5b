"""Shared state of a run: loop, hosts, history of the clients, and watchers."""

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from odradek.simulation.environment.loop import SimLoop
from tests.sim.history import History, Partition

if TYPE_CHECKING:
    from tests.sim.cluster.cluster import Cluster
    from tests.sim.options.run_options import Options
    from tests.sim.watchers.monitor import Monitor

TOPIC: Final = "ledger"
TABLE: Final = "table"
"""A compacted topic of records with keys, in part of the runs."""
TENANT_TOPICS: Final = ("bob-orders", "shared-bob")
"""Topics of a second honest tenant, in runs with SASL and ACLs."""
TRANSACTION_STATE: Final = "__transaction_state"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
COORDINATED: Final = (TRANSACTION_STATE, CONSUMER_OFFSETS)
"""Topics of the transaction and group coordinators."""
COMPACTED: Final = (*COORDINATED, TABLE)
"""Compacted topics: offsets may be missing."""
METADATA: Final = "__cluster_metadata"
HOST_FORM: Final = "broker-{}.sim"
PORT: Final = 9092
"""Port of the listener for clients."""
INTERNAL_PORT: Final = PORT + 2_000
"""Port of the listener for brokers and controllers, on which nodes authenticate."""


def host_name(number: int) -> str:
    return HOST_FORM.format(number)


def number_of(host: str) -> int:
    """Return the number of the node with this host name."""
    prefix, _, suffix = HOST_FORM.partition("{}")
    return int(host.removeprefix(prefix).removesuffix(suffix))


@dataclass(slots=True)
class LateFrame:
    """A delayed EndTxn request, or a marker of a delayed WriteTxnMarkers request (`transactional_id` is empty)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    version: int
    clock: int
    partitions: tuple[Partition, ...] = ()


@dataclass
class World:
    """State shared by the parts of a run."""

    options: "Options"
    loop: SimLoop
    rng: Random
    history: History
    cluster: "Cluster"
    monitor: "Monitor"
    late_frames: list[LateFrame] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    stopping: bool = False
    _transactions: int = 0
    _values: int = 0

    def now(self) -> float:
        return self.loop.time()

    def timestamp(self) -> int:
        """Return the wall clock of the clients, which is never stepped."""
        return self.cluster.clients_clock.wall_ms()

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by

    def next_transaction(self) -> int:
        self._transactions += 1
        return self._transactions

    def next_values(self, count: int, *, padding: int) -> tuple[bytes, ...]:
        """Return `count` unique values."""
        first = self._values
        self._values += count
        return tuple(b"%08d" % number + b"." * padding for number in range(first, first + count))

    @property
    def transactions_begun(self) -> int:
        return self._transactions

    @property
    def partitions(self) -> list[Partition]:
        """Partitions of the ledger."""
        return [(TOPIC, index) for index in range(self.options.partitions)]

    @property
    def written(self) -> list[Partition]:
        """Partitions that honest clients write: those of the ledger, the compacted topic, and a second tenant."""
        compaction = self.options.compaction
        tables = [(TABLE, 0)] if compaction is not None and compaction.table is not None else []
        tenants = [(topic, 0) for topic in TENANT_TOPICS] if self.options.security is not None else []
        return [*self.partitions, *tables, *tenants]
