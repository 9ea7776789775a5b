"""Open transactions by partition: which hold back a last stable offset, and the end of a hanging one (KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from odradek.client.admin.client_fields import client_fields
from odradek.client.admin.offsets import ends_of_partitions, partitions_by_leader
from odradek.client.admin.topics import topics_named
from odradek.client.admin.transactions import open_transactions
from odradek.client.errors import ClientError, NotFound, Refused, check
from odradek.client.network.fan_out import FanOut, PartialResult
from odradek.client.network.metadata import TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from odradek.client.admin.transactions import TransactionDescription
    from odradek.client.network.cluster import Cluster
    from odradek.client.network.metadata import Topic
    from odradek.protocol.schema import Message


UNUSED_ID: Final = "? a transactional id of no producer"
"""Transactional id that only ACLs for all ids match."""


class HolderState(Enum):
    """State of the transaction that holds back a last stable offset.

    - OPEN: its coordinator has it in the state Ongoing.
    - IN_DOUBT: as OPEN, and it takes part in a two-phase commit, so that it does not time out.
    - COMPLETING: its coordinator writes its markers.
    - HANGING: no coordinator knows it, so that it does not time out.
    - UNKNOWN: no coordinator lists it for this user, and not all coordinators responded, or the user may not describe
      all transactional ids.
    - ENDED: its markers were written between two requests of this client.
    """

    OPEN = "open"
    IN_DOUBT = "in doubt"
    COMPLETING = "completing"
    HANGING = "hanging"
    UNKNOWN = "unknown"
    ENDED = "just ended"


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """An open transaction in one partition. `last_timestamp` is that of its last record, in milliseconds since 1970.

    `client_id` and `address` are None if the leader does not know the client: it was elected or started later, or it is
    not an Odradek broker.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_timestamp: int
    client_id: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class BlockedPartition:
    """A partition whose last stable offset is below its high watermark.

    Attributes:
        topic: Name of the topic.
        partition: Partition index.
        last_stable_offset: First offset of the earliest open transaction.
        high_watermark: High watermark.
        state: State of that transaction.
        producer: Its producer; None if the transaction has just ended.
        transaction: Its description by the coordinator; None if no coordinator that responded lists it for this user.
    """

    topic: str
    partition: int
    last_stable_offset: int
    high_watermark: int
    state: HolderState
    producer: OpenProducer | None
    transaction: TransactionDescription | None


async def blocked_partitions(cluster: Cluster, names: Sequence[str] | None = None) -> PartialResult[BlockedPartition]:
    """Return the partitions of the named topics, or of all, whose read_committed readers wait for a transaction.

    Raises:
        NotFound: A topic does not exist.
    """
    fan_out = FanOut(cluster, tolerant=True)
    topics = await topics_named(cluster, names)
    ends = await ends_of_partitions(fan_out, topics)
    blocked = {
        key: (stable, high)
        for key, (stable, high) in ends.items()
        if stable is not None and high is not None and stable < high
    }
    holders = _holders(await _open_producers(fan_out, _selected(topics, blocked)))
    open_ids = {row.producer_id: row for row in await open_transactions(fan_out)}
    known: dict[tuple[str, int], TransactionDescription] = {
        key: row
        for key, holder in holders.items()
        if (row := open_ids.get(holder.producer_id)) is not None and key in row.partitions
    }
    unknown = {key: each for key, each in holders.items() if key not in known}
    ended = [] if fan_out.unreachable else await _ended(fan_out, topics, unknown)
    if not fan_out.unreachable:  # without all responses, a transaction is neither hanging nor ended for certain
        holders = {key: each for key, each in holders.items() if key not in ended}
    complete = not fan_out.unreachable and (not unknown or await _lists_all_ids(fan_out))
    rows = []
    for key, (stable, high) in blocked.items():
        holder, found = holders.get(key), known.get(key)
        state = _state(holder, found, complete=complete)
        rows.append(BlockedPartition(*key, stable, high, state, holder, found))
    return PartialResult(rows, fan_out.unreachable)


def _holders(producers: Iterable[OpenProducer]) -> dict[tuple[str, int], OpenProducer]:
    """Return the producer of the earliest open transaction by partition."""
    holders: dict[tuple[str, int], OpenProducer] = {}
    for each in producers:
        first = holders.setdefault((each.topic, each.partition), each)
        if each.first_offset < first.first_offset:
            holders[each.topic, each.partition] = each
    return holders


async def _ended(
    fan_out: FanOut, topics: Sequence[Topic], holders: Mapping[tuple[str, int], OpenProducer]
) -> list[tuple[str, int]]:
    """Return the partitions whose transaction is no longer open.

    Without this check, a producer that does not pause can look like a hanging one:

    1. The leader describes the open transaction A.
    2. A ends in all partitions. Its producer begins transaction B in another partition.
    3. The coordinator describes B, without the partition.

    A transaction that is open before and after step 3 is open in it, too, so that its coordinator would know it.
    """
    now = {
        (each.topic, each.partition, each.producer_id, each.producer_epoch, each.first_offset)
        for each in await _open_producers(fan_out, _selected(topics, holders))
    }
    return [
        key
        for key, each in holders.items()
        if (*key, each.producer_id, each.producer_epoch, each.first_offset) not in now
    ]


async def _lists_all_ids(fan_out: FanOut) -> bool:
    """Return True if the user may describe any transactional id.

    Brokers omit the other ids from their lists without an error, so that an open transaction of such an id would look
    like a hanging one. ACLs that deny single ids are not detected.
    """
    node_id = min((await fan_out.cluster.fetch_metadata([])).brokers)
    response = await fan_out.request(node_id, DescribeTransactionsRequest(transactional_ids=[UNUSED_ID]))
    refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return response is not None and all(state.error_code != refusal for state in response.transaction_states)


def _state(holder: OpenProducer | None, transaction: TransactionDescription | None, *, complete: bool) -> HolderState:
    """Return the state of the transaction. `complete` is True if all coordinators listed all their transactions."""
    if holder is None:
        return HolderState.ENDED
    if transaction is None:
        return HolderState.HANGING if complete else HolderState.UNKNOWN
    if transaction.in_doubt:
        return HolderState.IN_DOUBT
    return HolderState.OPEN if transaction.state == "Ongoing" else HolderState.COMPLETING


def _selected(topics: Sequence[Topic], partitions: Collection[tuple[str, int]]) -> list[Topic]:
    """Return the topics with the given partitions alone."""
    return [
        replace(
            topic,
            partitions={
                index: partition for index, partition in topic.partitions.items() if (topic.name, index) in partitions
            },
        )
        for topic in topics
    ]


async def _open_producers(fan_out: FanOut, topics: Sequence[Topic]) -> list[OpenProducer]:
    """Return the open transactions in all partitions, as their leaders know them."""
    requests: dict[int, Message] = {
        leader: DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=list(indexes)) for name, indexes in led.items()]
        )
        for leader, led in partitions_by_leader(topics).items()
    }
    return [
        OpenProducer(
            topic.name,
            partition.partition_index,
            state.producer_id,
            state.producer_epoch,
            state.coordinator_epoch,
            state.current_txn_start_offset,
            state.last_timestamp,
            *client_fields(state.unknown_tagged_fields)[:2],
        )
        for response in (await fan_out.request_each(requests)).values()
        for topic in response.topics
        for partition in topic.partitions
        for state in partition.active_producers
        if state.current_txn_start_offset >= 0
    ]


async def abort_hanging_transaction(cluster: Cluster, topic: str, partition: int, producer_id: int) -> OpenProducer:
    """Write an abort marker into one partition for a transaction that no coordinator will end. Return the transaction.

    Raises:
        NotFound: The topic does not exist, or the producer has no open transaction in the partition.
        Refused: The user may not describe all transactional ids, so that a coordinator may know the transaction.
        ClientError: A coordinator knows the transaction, so that it must be ended by its transactional id.
    """
    fan_out = FanOut(cluster)
    topics = await topics_named(cluster, [topic])
    producers = await _open_producers(fan_out, topics)
    found = next((one for one in producers if (one.partition, one.producer_id) == (partition, producer_id)), None)
    if found is None:
        raise NotFound(f"producer {producer_id} has no open transaction in {topic}-{partition}")
    for row in await open_transactions(fan_out):
        if row.producer_id == producer_id and TopicPartition(topic, partition) in row.partitions:
            remedy = f"end it with: odradek txns abort {row.transactional_id}"
            raise ClientError(f"the transaction is not hanging: broker {row.coordinator} coordinates it", remedy)
    if not await _lists_all_ids(fan_out):
        raise Refused(
            "this user may not describe all transactional ids, so the transaction may not be hanging",
            "abort it with a user that has DESCRIBE on all of them",
            code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        )
    if await _ended(fan_out, topics, {(topic, partition): found}):
        raise NotFound(f"producer {producer_id} has ended its transaction in {topic}-{partition} meanwhile")
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=found.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=max(found.coordinator_epoch, 0),
    )
    leader = topics[0].partition(partition).leader
    response = await cluster.request(leader, WriteTxnMarkersRequest(markers=[marker]))
    code = response.markers[0].topics[0].partitions[0].error_code
    check(code, f"{topic}-{partition}: the marker was refused")
    return found
