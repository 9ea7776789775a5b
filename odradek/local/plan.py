"""Plan of a local cluster: its id, the addresses of its brokers, and their properties. All functions are pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.local.security import Security, SecurityFiles, broker_rows

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

BROKERS_MAX = 9
"""Maximum brokers of a local cluster."""
VOTERS_MAX = 5
"""Maximum voters of a local cluster. Five survive two failures; each further voter makes commits slower."""
REPLICATION_BROKERS_MIN = 3
"""Minimum brokers for `REPLICATION_PROPERTIES`."""
REPLICATION_PROPERTIES = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
WILDCARD_ADDRESSES = ("", "0.0.0.0", "::")  # noqa: S104  compared only, to replace them by the loopback address
LOOPBACK = "127.0.0.1"
CLIENT_LISTENER = "PLAINTEXT"
"""Name of the listener for clients of a cluster without security."""
INTER_BROKER_LISTENER = "INTERNAL"
"""Name of the listener for requests between brokers and for the voters, on the loopback address."""
LISTENERS = "listeners"
INTER_BROKER_LISTENER_NAME = "inter.broker.listener.name"
CLUSTER_SECRET_FILE = "cluster.secret.file"  # noqa: S105  the name of a property
AUTHENTICATION_NAME = "odradek.inter.broker.authentication"
NO_AUTHENTICATION = "none"
"""Value of AUTHENTICATION_NAME for nodes without a cluster secret."""
SECRET_FILE_NAME = "cluster.secret"  # noqa: S105  the name of a file
"""Name of the file with the cluster secret, in the directory of the cluster."""
METRICS_LISTENER = "odradek.metrics.listener"
INITIAL_REBALANCE_DELAY = "group.initial.rebalance.delay.ms"
"""Property that delays the first read of each new group, by three seconds unless it is set."""
HEADER = "# Overwritten at every start of this local cluster. To change a property: odradek up --set name=value"


@dataclass(frozen=True)
class Plan:
    """Identity, addresses and settings of a local cluster, as stored in cluster.json.

    Attributes:
        cluster_id: Cluster id.
        host: Address that the brokers listen on.
        ports: Client port by node id, in ascending order.
        settings: Properties of all brokers as `name=value`, from the last start.
        metrics: Port for Prometheus on the loopback address, by node id. A broker without an entry has none.
        inter_broker: Port of the inter-broker listener by node id. Empty if one listener serves clients and brokers: by
            a setting, or while brokers run that an earlier version started.
        has_secret: True if the brokers authenticate to each other with the secret in the directory.
        security: TLS and users of the cluster. None: plain text.
        broker_settings: Properties of single brokers as `name=value`, by node id. They override `settings`. Listeners
            of one broker are added to those of the cluster, if brokers have a listener of their own.
    """

    cluster_id: str
    host: str
    ports: dict[int, int]
    settings: list[str] = field(default_factory=list)
    metrics: dict[int, int] = field(default_factory=dict)
    inter_broker: dict[int, int] = field(default_factory=dict)
    has_secret: bool = False
    security: Security | None = None
    broker_settings: dict[int, list[str]] = field(default_factory=dict)

    def settings_of(self, node_id: int) -> list[str]:
        """Return the properties of one broker as `name=value`. The last value of a property counts."""
        return [*self.settings, *self.broker_settings.get(node_id, ())]

    def arguments_of(self, node_id: int) -> list[str]:
        """Return the properties of this broker alone that its file does not have."""
        own = self.broker_settings.get(node_id, ())
        return [setting for setting in own if not self.inter_broker or not sets([setting], LISTENERS)]

    @property
    def client_listener(self) -> str:
        """Name of the listener for clients."""
        return CLIENT_LISTENER if self.security is None else self.security.kind.protocol

    @property
    def node_ids(self) -> list[int]:
        return list(self.ports)

    @property
    def voters(self) -> list[int]:
        """Node ids of the voters. Their number is odd: one more voter would not survive more failures."""
        count = min(len(self.ports), VOTERS_MAX)
        return self.node_ids[: count - 1 + count % 2]

    @property
    def majority(self) -> int:
        """Number of voters that must run to elect a leader of the metadata log."""
        return len(self.voters) // 2 + 1

    def endpoint(self, node_id: int) -> str:
        """Return the address of a broker for clients on this machine: `host:port`."""
        return self._reachable(self.ports[node_id])

    def voter_address(self, node_id: int) -> str:
        """Return the address of a broker for the other brokers and for the quorum: `host:port`."""
        return f"{LOOPBACK}:{self.inter_broker[node_id]}" if self.inter_broker else self.endpoint(node_id)

    def _reachable(self, port: int) -> str:
        host = LOOPBACK if self.host in WILDCARD_ADDRESSES else self.host
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def metrics_url(self, node_id: int) -> str | None:
        """Return the URL of a broker's metrics for clients on this machine, or None if it exports none."""
        listener = value_of(self.settings_of(node_id), METRICS_LISTENER)
        if listener is not None:
            host, _, port = listener.rpartition(":")
            if not port.isdecimal() or not int(port):
                return None
            return f"http://{LOOPBACK if host.strip('[]') in WILDCARD_ADDRESSES else host}:{port}/metrics"
        return f"http://{LOOPBACK}:{self.metrics[node_id]}/metrics" if node_id in self.metrics else None

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers for clients on this machine: `host:port,...`."""
        return ",".join(self.endpoint(node_id) for node_id in self.ports)

    def properties(self, node_id: int, data: Path, token_key: str | None = None) -> str:
        """Return the content of a broker's properties file.

        `data` is its data directory. `token_key` is the key of delegation tokens, of a cluster that has one.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        listeners = f"{self.client_listener}://{host}:{self.ports[node_id]}"
        if self.inter_broker:
            listeners += f",{INTER_BROKER_LISTENER}://{LOOPBACK}:{self.inter_broker[node_id]}"
            added = value_of(self.broker_settings.get(node_id, ()), LISTENERS)
            listeners += f",{added}" if added else ""
        rows = {
            "node.id": str(node_id),
            LISTENERS: listeners,
            "log.dirs": str(data),
            "odradek.cluster.id": self.cluster_id,
            "controller.quorum.voters": ",".join(f"{voter}@{self.voter_address(voter)}" for voter in self.voters),
            INITIAL_REBALANCE_DELAY: "0",
        }
        if self.inter_broker:
            rows[INTER_BROKER_LISTENER_NAME] = INTER_BROKER_LISTENER
        elif not sets(self.settings, LISTENERS):
            rows[INTER_BROKER_LISTENER_NAME] = CLIENT_LISTENER
        if self.security is not None:
            rows |= broker_rows(self.security, SecurityFiles(data.parent), node_id, INTER_BROKER_LISTENER, token_key)
        if self.has_secret:
            rows[CLUSTER_SECRET_FILE] = str(data.parent / SECRET_FILE_NAME)
        if node_id in self.metrics:
            rows[METRICS_LISTENER] = f"{LOOPBACK}:{self.metrics[node_id]}"
        if len(self.ports) >= REPLICATION_BROKERS_MIN:
            rows |= REPLICATION_PROPERTIES
        return "".join(f"{line}\n" for line in (HEADER, *(f"{name}={value}" for name, value in rows.items())))


def values_of(settings: Iterable[str]) -> dict[str, str]:
    """Return the values of settings `name=value` by the names of their properties. The last one of a name counts."""
    pairs = (setting.partition("=") for setting in settings)
    return {name.strip(): value.strip() for name, _, value in pairs}


def value_of(settings: Iterable[str], name: str) -> str | None:
    """Return the value of the property `name` in settings `name=value`, or None. The last one counts."""
    return values_of(settings).get(name)


def sets(settings: Iterable[str], name: str) -> bool:
    """Return True if one of the settings `name=value` sets the property `name`."""
    return name in values_of(settings)
