"""Rows and warnings of `odradek status`, for tables, JSON and the live view."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.commands.outputs import Output, Shape
from odradek.commands.rows import row_of, transaction_row
from odradek.local.recovery import recovery_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from odradek.client import ClusterStatus
    from odradek.local.directory import ClusterDirectory, ClusterState

BROKERS = Output(
    "status",
    (
        "node_id", "endpoint", "state", "role", "rack", "leads", "under_replicated", "log_bytes", "pid", "metrics",
        "log",
    ),
    ("running", "is_fenced", "offline_log_dirs", "offline_partitions"),
    within="brokers",
)  # fmt: skip
PARTITIONS = Output(
    "status",
    (
        "topic", "partition", "leader", "replicas", "isr", "log_start_offset", "last_stable_offset", "high_watermark",
        "log_end_offset",
    ),
    ("leader_epoch", "is_internal"),
    within="partitions",
)  # fmt: skip
TRANSACTIONS = Output(
    "status",
    (
        "transactional_id", "transaction_state", "producer_id", "producer_epoch", "transaction_duration_ms",
        "times_out", "topic_partitions",
    ),
    (
        "client_id", "client_host", "coordinator", "transaction_timeout_ms", "transaction_start_time_ms", "since",
        "in_doubt",
    ),
    within="transactions",
)  # fmt: skip
GROUPS = Output(
    "status", ("group", "type", "state", "lag", "stable_lag"), ("protocol_type", "coordinator"), within="groups"
)
LOG_DIR_FIELDS = ("log_bytes", "offline_log_dirs", "offline_partitions")
"""Fields of a broker that come from its log directories."""
NAMED_MAX = 5
"""Maximum offline partitions that a warning names. The JSON has all."""
UNKNOWN: dict[str, Any] = {
    "cluster_id": None,
    "controller_id": None,
    "current_voters": None,
    "brokers": [],
    "partitions": None,
    "under_replicated": None,
    "groups": None,
    "transactions": None,
    "unreachable": [],
}
"""Values of a cluster without a broker that responds."""
STATUS = Output("status", more=tuple(UNKNOWN), shape=Shape.OBJECT)


def status_values(status: ClusterStatus) -> dict[str, Any]:
    """Convert the status of a cluster into values for tables and JSON, by field name.

    The open transactions are null if none is known, and at least one broker did not respond.
    """
    transactions = [transaction_row(transaction) for transaction in status.transactions]
    values = row_of(status)
    known = transactions or not status.unreachable
    return {
        **values,
        "partitions": PARTITIONS.rows(values["partitions"]),
        "groups": GROUPS.rows(values["groups"]),
        "transactions": TRANSACTIONS.rows(transactions) if known else None,
        "unreachable": sorted(status.unreachable),
    }


@dataclass(frozen=True, slots=True)
class Local:
    """A local cluster: its directory and its state file."""

    cluster: ClusterDirectory
    state: ClusterState

    def read_again(self) -> Local:
        """Return the same cluster with its present state."""
        return Local(self.cluster, self.cluster.read_state() or self.state)


def broker_rows(local: Local | None, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of all brokers: those of the directory of a local cluster, or those that the cluster names."""
    if local is not None:
        return [broker_row(local.cluster, local.state, node_id, values) for node_id in local.state.plan.node_ids]
    return [remote_broker_row(broker, values) for broker in values["brokers"]]


def remote_broker_row(broker: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of one broker of any cluster. What only its host knows is null."""
    node_id, fenced = broker["node_id"], broker["is_fenced"]
    responds = not fenced and node_id not in values["unreachable"]
    host = f"[{broker['host']}]" if ":" in broker["host"] else broker["host"]
    return {
        "node_id": node_id,
        "endpoint": f"{host}:{broker['port']}",
        "running": responds,
        "is_fenced": fenced,
        "state": "fenced" if fenced else "running" if responds else "no response",
        "role": role(node_id, values, values["current_voters"] or ()),
        "rack": broker["rack"],
        **counts_of(node_id, values),
        **{name: broker.get(name) for name in LOG_DIR_FIELDS},
        "metrics": None,
        "pid": None,
        "log": None,
    }


def counts_of(node_id: int, values: Mapping[str, Any]) -> dict[str, int]:
    """Count the partitions that a broker leads, and its replicas of under-replicated partitions."""
    partitions, behind = values["partitions"] or (), set(values["under_replicated"] or ())
    return {
        "leads": sum(row["leader"] == node_id for row in partitions),
        "under_replicated": sum(
            node_id in row["replicas"] and f"{row['topic']}-{row['partition']}" in behind for row in partitions
        ),
    }


def broker_row(
    cluster: ClusterDirectory, state: ClusterState, node_id: int, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the row of one broker, from the state file, its process, and the metadata of the cluster."""
    metadata: dict[str, Any] = next((row for row in values["brokers"] if row["node_id"] == node_id), {})
    running = node_id in state.alive()
    fenced = metadata.get("is_fenced") if running else None
    metrics = state.plan.metrics_url(node_id) if running else None
    recovery = recovery_of(metrics) if running and fenced is not False else None
    return {
        "node_id": node_id,
        "endpoint": state.plan.endpoint(node_id),
        "running": running,
        "is_fenced": fenced,
        "state": str(recovery or ("fenced" if fenced else "running")) if running else down_state(state, node_id),
        "role": role(node_id, values, state.plan.voters),
        "rack": metadata.get("rack"),
        **counts_of(node_id, values),
        **{name: metadata.get(name) for name in LOG_DIR_FIELDS},
        "metrics": metrics,
        "pid": state.running[node_id].pid if running else None,
        "log": str(cluster.log(node_id)),
    }


def down_state(state: ClusterState, node_id: int) -> str:
    """Return the state of a broker that does not run: failed, stopping or stopped."""
    if node_id in state.running:
        return "failed"
    return "stopping" if node_id in state.alive_stopping() else "stopped"


def role(node_id: int, values: Mapping[str, Any], voters: Collection[int]) -> str:
    """Return the role of a broker in the quorum: controller, voter or observer."""
    if node_id == values["controller_id"]:
        return "controller"
    return "voter" if node_id in voters else "observer"


def count_text(rows: Sequence[Any] | None) -> str:
    """Return the number of rows as text. None is "unknown"."""
    return "unknown" if rows is None else str(len(rows))


def open_transactions_text(values: Mapping[str, Any]) -> str:
    """Return the number of open transactions, and the brokers whose transactions are not known."""
    count = count_text(values["transactions"])
    if not values["unreachable"]:
        return count
    names = ", ".join(str(node_id) for node_id in values["unreachable"])
    return f"{count}{' or more' if values['transactions'] else ''}, no response from broker {names}"


def warnings(values: Mapping[str, Any]) -> list[str]:
    """Return one line for all under-replicated partitions, and lines for each broker with a problem."""
    lines = []
    for broker in values["brokers"]:
        name = f"broker {broker['node_id']}"
        lines += [f"{name}: log directory {each} is offline" for each in broker.get("offline_log_dirs") or ()]
        if offline := broker.get("offline_partitions"):
            more = f", and {len(offline) - NAMED_MAX} more" if len(offline) > NAMED_MAX else ""
            lines.append(f"{name}: offline partitions {', '.join(offline[:NAMED_MAX])}{more}")
    if under_replicated := values["under_replicated"]:
        counts = Counter(name.rpartition("-")[0] for name in under_replicated)
        lines.append("under-replicated: " + ", ".join(f"{count} of {topic}" for topic, count in counts.items()))
    return [
        *lines,
        *(
            f"no response from broker {node_id}: its groups and transactions are missing"
            for node_id in values["unreachable"]
        ),
    ]
