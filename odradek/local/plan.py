"""What a local cluster is: its id, its brokers and their addresses, and what each of them is told. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BROKERS_MAX = 9
VOTERS_MAX = 5
"""Nodes that agree on the metadata; each more makes agreement slower, and five survive the loss of two."""
REPLICATED_FROM = 3
"""Brokers from which on topics are replicated by default: three copies, two of which must have a record."""
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104  recognized so that nobody is told to connect there
LOOPBACK = "127.0.0.1"
METRICS_LISTENER = "odradek.metrics.listener"
HEAD = "# written at every start of this local cluster; changes belong on the command line: --set name=value"


@dataclass(frozen=True)
class Plan:
    """Kept in the directory of the cluster; `ports` by node id, in order. `settings` are those of the last start."""

    cluster_id: str
    host: str
    ports: dict[int, int]
    settings: list[str] = field(default_factory=list)
    metrics: dict[int, int] = field(default_factory=dict)
    """The port at which each tells Prometheus of itself, by node id; missing where it does not."""

    @property
    def node_ids(self) -> list[int]:
        return list(self.ports)

    @property
    def voters(self) -> list[int]:
        """The nodes that agree on the metadata: an odd number, since an even one survives no more losses."""
        count = min(len(self.ports), VOTERS_MAX)
        return self.node_ids[: count - 1 + count % 2]

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def endpoint(self, node_id: int) -> str:
        """Where broker and clients on this machine find it: host:port."""
        return self._reachable(self.ports[node_id])

    def _reachable(self, port: int) -> str:
        host = LOOPBACK if self.host in EVERYWHERE else self.host
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def metrics_url(self, node_id: int) -> str | None:
        """Where Prometheus and a browser on this machine find the metrics of a broker; None where it offers none."""
        set_by_hand = [pair.partition("=")[2] for pair in self.settings if pair.startswith(f"{METRICS_LISTENER}=")]
        if set_by_hand:
            listener = set_by_hand[-1].strip()
            port = listener.rpartition(":")[2]
            return f"http://{self._reachable(int(port))}/metrics" if port.isdecimal() and int(port) else None
        return f"http://{self._reachable(self.metrics[node_id])}/metrics" if node_id in self.metrics else None

    @property
    def bootstrap(self) -> str:
        return ",".join(self.endpoint(node_id) for node_id in self.ports)

    def properties(self, node_id: int, data: Path) -> str:
        """The properties file of one broker."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        rows = {
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{host}:{self.ports[node_id]}",
            "log.dirs": str(data),
            "odradek.cluster.id": self.cluster_id,
            "controller.quorum.voters": ",".join(f"{voter}@{self.endpoint(voter)}" for voter in self.voters),
        }
        if node_id in self.metrics:
            rows[METRICS_LISTENER] = f"{host}:{self.metrics[node_id]}"
        if len(self.ports) >= REPLICATED_FROM:
            rows |= REPLICATED
        return "".join(f"{line}\n" for line in (HEAD, *(f"{name}={value}" for name, value in rows.items())))
