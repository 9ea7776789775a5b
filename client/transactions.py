"""Transactions: which are open, which hold back which readers, and how to end one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from odradek.client import topics as topic_admin
from odradek.client.client import TRANSACTION_KEY, Cluster, Failed, Unaskable, check
from odradek.protocol.errors import ErrorCode
from odradek.protocol.extensions import DESCRIBED_CLIENT_ID_TAG
from odradek.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.protocol.messages.describe_producers import ProducerState
    from odradek.protocol.messages.metadata import MetadataResponseTopic

OPEN_STATES = ["Ongoing", "PrepareCommit", "PrepareAbort"]
STATES = ["Empty", *OPEN_STATES, "CompleteCommit", "CompleteAbort", "PrepareEpochFence"]
FENCE_TIMEOUT_MS = 1_000  # of the new, empty transaction that fencing leaves behind; it never starts
FENCE_ATTEMPTS_MAX = 60  # each waits in the coordinator for the markers of what is being aborted


@dataclass(frozen=True)
class Producer:
    """An open transaction as one partition sees it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_timestamp: int


def listing(cluster: Cluster, states: Sequence[str]) -> list[dict[str, Any]]:
    """What every coordinator knows, by transactional id."""
    rows = []
    for broker in cluster.metadata.brokers:
        answer = cluster.ask(broker.node_id, ListTransactionsRequest(state_filters=list(states)))
        if answer is None:
            continue
        if cluster.excuses(broker.node_id, answer.error_code):  # it is loading, and knows only a part yet
            continue
        check(answer.error_code, f"listing transactions on broker {broker.node_id}")
        if answer.unknown_state_filters:
            raise Unaskable(f"no such state: {', '.join(answer.unknown_state_filters)}; there are {', '.join(STATES)}")
        rows += [
            {
                "transactional_id": state.transactional_id,
                "state": state.transaction_state,
                "producer_id": state.producer_id,
                "coordinator": broker.node_id,
            }
            for state in answer.transaction_states
        ]
    described = {row["transactional_id"]: row for row in describe(cluster, rows)}
    for row in rows:
        row["producer_epoch"] = described.get(row["transactional_id"], {}).get("producer_epoch")
    return sorted(rows, key=lambda row: str(row["transactional_id"]))


def describe(cluster: Cluster, listed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Details of listed ids, asked of the coordinators that listed them."""
    by_node: dict[int, list[str]] = {}
    for row in listed:
        by_node.setdefault(row["coordinator"], []).append(row["transactional_id"])
    rows = []
    for node_id, ids in by_node.items():
        answer = cluster.ask(node_id, DescribeTransactionsRequest(transactional_ids=ids))
        states = answer.transaction_states if answer is not None else ()
        rows += [described(state, node_id) for state in states if state.error_code == ErrorCode.NONE]
    return rows


def described(state: Any, node_id: int) -> dict[str, Any]:
    started = state.transaction_start_time_ms
    client = dict(state.unknown_tagged_fields).get(DESCRIBED_CLIENT_ID_TAG)
    return {
        "transactional_id": state.transactional_id,
        "state": state.transaction_state,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "client_id": client.decode(errors="replace") if client else None,
        "coordinator": node_id,
        "timeout_ms": state.transaction_timeout_ms,
        "started_ms": started if started >= 0 else None,
        "since": moment(started) if started >= 0 else None,
        "times_out": moment(started + state.transaction_timeout_ms) if started >= 0 else None,
        "open_for_ms": now_ms() - started if started >= 0 else None,
        "partitions": [f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions],
    }


def one(cluster: Cluster, transactional_id: str) -> dict[str, Any]:
    node_id = cluster.coordinator(transactional_id, TRANSACTION_KEY)
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    state = cluster.node(node_id).call(request).transaction_states[0]
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise Failed(f"transactional id {transactional_id} does not exist; those that there are: odradek txns list")
    check(state.error_code, f"transactional id {transactional_id}")
    return described(state, node_id)


def open_transactions(cluster: Cluster) -> list[dict[str, Any]]:
    return sorted(describe(cluster, listing(cluster, OPEN_STATES)), key=lambda row: row["started_ms"] or 0)


def blocking(cluster: Cluster, names: Sequence[str] | None) -> list[dict[str, Any]]:
    """A row a partition whose last stable offset is held back, with the transaction that holds it.

    The holder is the open transaction with the smallest first offset. Its transactional id is joined by producer id from what the coordinators
    list; a holder that no coordinator knows as open will never be ended by one: ``hanging``. When a coordinator has not answered that is
    ``unknown``.
    """
    metadata = topic_admin.named(cluster, names)
    held = [row for row in topic_admin.partitions(cluster, names) if is_held_back(row)]
    producers = open_producers(cluster, metadata)
    known = {row["producer_id"]: row for row in open_transactions(cluster)}
    rows = []
    for row in held:
        here = [one for one in producers if (one.topic, one.partition) == (row["topic"], row["partition"])]
        holder = min(here, key=lambda one: one.first_offset, default=None)
        verdict = "unknown" if cluster.unanswered else "hanging"
        rows.append(blocked_row(row, holder, known.get(holder.producer_id) if holder else None, verdict))
    return rows


def is_held_back(row: dict[str, Any]) -> bool:
    stable, high = row["last_stable_offset"], row["high_watermark"]
    return stable is not None and high is not None and stable < high


def blocked_row(
    row: dict[str, Any], holder: Producer | None, known: dict[str, Any] | None, of_nobody: str
) -> dict[str, Any]:
    """``of_nobody``: the verdict on a transaction that no coordinator has named."""
    joined = {
        "topic": row["topic"],
        "partition": row["partition"],
        "last_stable_offset": row["last_stable_offset"],
        "high_watermark": row["high_watermark"],
        "held_back": row["high_watermark"] - row["last_stable_offset"],
    }
    if holder is None:
        return joined | {"verdict": "just ended"}
    joined |= {"producer_id": holder.producer_id, "producer_epoch": holder.producer_epoch}
    if known is None or f"{holder.topic}-{holder.partition}" not in known["partitions"]:
        return joined | {"verdict": of_nobody, "since": moment(holder.last_timestamp)}
    names = ("transactional_id", "client_id", "state", "since", "times_out", "open_for_ms")
    verdict = "open" if known["state"] == "Ongoing" else "completing"
    return joined | {name: known[name] for name in names} | {"verdict": verdict}


def open_producers(cluster: Cluster, metadata: Sequence[MetadataResponseTopic]) -> list[Producer]:
    """Every open transaction of every partition, asked of the partitions' leaders."""
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic in metadata:
        for partition in topic.partitions:
            indexes = by_leader.setdefault(partition.leader_id, {}).setdefault(topic.name or "", [])
            indexes.append(partition.partition_index)
    found: list[Producer] = []
    for leader, wanted in by_leader.items():
        if leader < 0:
            continue
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
        )
        answered = cluster.ask(leader, request)
        for answer in answered.topics if answered is not None else ():
            for partition in answer.partitions:
                found += [
                    as_producer(answer.name, partition.partition_index, state)
                    for state in partition.active_producers
                    if state.current_txn_start_offset >= 0
                ]
    return found


def as_producer(topic: str, partition: int, state: ProducerState) -> Producer:
    return Producer(
        topic,
        partition,
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.current_txn_start_offset,
        state.last_timestamp,
    )


def fence(cluster: Cluster, transactional_id: str) -> dict[str, Any]:
    """Fence the id's producer, which aborts what it has open (as Kafka's fenceProducers does)."""
    before = one(cluster, transactional_id)
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=FENCE_TIMEOUT_MS)
    connection = cluster.node(before["coordinator"])
    for _ in range(FENCE_ATTEMPTS_MAX):
        answer = connection.call(request)
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            break
    check(answer.error_code, f"transactional id {transactional_id} was not fenced")
    message = f"{transactional_id}: producer {before['producer_id']} epoch {before['producer_epoch']} is fenced"
    if before["state"] == "Ongoing":
        message += ", its transaction is aborted"
    return {"transactional_id": transactional_id, "was": before["state"], "message": message}


def abort_hanging(cluster: Cluster, topic: str, partition: int, producer_id: int) -> dict[str, Any]:
    """Write an abort marker into one partition for a transaction that no coordinator will end (KIP-664).

    Raises:
        Failed: there is no such open transaction there, or a coordinator still knows it: then it must be ended by its id.
    """
    metadata = topic_admin.named(cluster, [topic])
    for producer in open_producers(cluster, metadata):
        if (producer.partition, producer.producer_id) == (partition, producer_id):
            break
    else:
        raise Failed(f"producer {producer_id} has no open transaction in {topic}-{partition}")
    for row in open_transactions(cluster):
        if row["producer_id"] == producer_id and f"{topic}-{partition}" in row["partitions"]:
            raise Failed(f"it is not hanging: end it with: odradek txns abort {row['transactional_id']}")
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    leader = next(one.leader_id for one in metadata[0].partitions if one.partition_index == partition)
    answer = cluster.node(leader).call(WriteTxnMarkersRequest(markers=[marker]))
    check(answer.markers[0].topics[0].partitions[0].error_code, f"{topic}-{partition}: the marker was refused")
    message = f"{topic}-{partition}: the transaction of producer {producer_id} that began at offset {producer.first_offset} is aborted"
    return {"topic": topic, "partition": partition, "producer_id": producer_id, "message": message}


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def moment(timestamp_ms: int) -> str:
    """A time as people read it, in UTC."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
