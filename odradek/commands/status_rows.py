"""Rows and remarks of ``status``, for tables and for the live view."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from odradek.commands.rows import row_of, transaction_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odradek.client import ClusterStatus
    from odradek.local.directory import ClusterDirectory, ClusterState

BROKER_COLUMNS = ("node_id", "endpoint", "state", "role", "rack", "leads", "pid", "metrics", "log")
PARTITION_COLUMNS = (
    "topic",
    "partition",
    "leader",
    "replicas",
    "isr",
    "log_start",
    "last_stable_offset",
    "high_watermark",
    "log_end",
)
TRANSACTION_COLUMNS = ("transactional_id", "state", "producer_id", "producer_epoch", "open_for_ms", "partitions")
GROUP_COLUMNS = {"group": "group", "type": "type", "state": "state", "lag": "lag", "stable_lag": "lag to LSO"}
UNKNOWN: dict[str, Any] = {
    "controller": None,
    "brokers": [],
    "partitions": None,
    "under_replicated": None,
    "groups": None,
    "transactions": None,
    "unanswered": [],
}
"""What no broker says, when none runs."""


def answer_of(status: ClusterStatus) -> dict[str, Any]:
    """Convert the status of a cluster into a row. Transactions are null if none is known and a broker did not respond."""
    transactions = [transaction_row(each) for each in status.transactions]
    row = row_of(status)
    del row["unreachable"]
    return {
        **row,
        "transactions": transactions or (None if status.unreachable else []),
        "unanswered": sorted(status.unreachable),
    }


def broker_row(
    cluster: ClusterDirectory, state: ClusterState, node_id: int, answer: Mapping[str, Any]
) -> dict[str, Any]:
    known: dict[str, Any] = next((row for row in answer["brokers"] if row["node_id"] == node_id), {})
    running = node_id in state.alive()
    fenced = known.get("fenced") if running else None
    return {
        "node_id": node_id,
        "endpoint": state.plan.endpoint(node_id),
        "running": running,
        "fenced": fenced,
        "state": "fenced" if fenced else "running" if running else "died" if node_id in state.running else "stopped",
        "role": role(state, node_id, answer),
        "rack": known.get("rack"),
        "leads": sum(row["leader"] == node_id for row in answer["partitions"] or ()),
        "metrics": state.plan.metrics_url(node_id) if running else None,
        "pid": state.running[node_id].pid if running else None,
        "log": str(cluster.log(node_id)),
    }


def role(state: ClusterState, node_id: int, answer: Mapping[str, Any]) -> str:
    if node_id == answer["controller"]:
        return "controller"
    return "voter" if node_id in state.plan.voters else "observer"


def known(found: Sequence[Any] | None) -> str:
    """How many; None is not known."""
    return "unknown" if found is None else str(len(found))


def open_known(answer: Mapping[str, Any]) -> str:
    """How many transactions are open, and who may know of others but did not answer."""
    count = known(answer["transactions"])
    if not answer["unanswered"]:
        return count
    silent = ", ".join(str(node_id) for node_id in answer["unanswered"])
    return f"{count}{' or more' if answer['transactions'] else ''}, no answer of broker {silent}"


def remarks(answer: Mapping[str, Any]) -> list[str]:
    """What is not as it should be, a line each."""
    lines = []
    if behind := answer["under_replicated"]:
        counts = Counter(name.rpartition("-")[0] for name in behind)
        lines.append("under-replicated: " + ", ".join(f"{count} of {topic}" for topic, count in counts.items()))
    return [
        *lines,
        *(f"no answer of broker {node_id}: what only it knows is missing here" for node_id in answer["unanswered"]),
    ]
