"""Transactional ids with their transactions, and the transactions that hold back last stable offsets."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.client import HolderState, IsolationLevel, TopicPartition, blocked_partitions, fetch_range
from odradek.client.admin.transactions import (
    OPEN_STATES,
    STATES,
    described_transactions,
    listed_transactions,
)
from odradek.client.errors import ClientError, NotFound, Refused
from odradek.client.network.fan_out import FanOut
from odradek.console.model.internal_topic import read_internal_topic
from odradek.console.model.paging import Paging, paging_of
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode, Malformed
from odradek.protocol.hashing import partition_for
from odradek.protocol.internal_topics import TRANSACTION_STATE
from odradek.protocol.messages.list_transactions import TransactionState
from odradek.protocol.special_values import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.client import BlockedPartition, Cluster, TransactionDescription

OPEN: Final = "open"
ALL: Final = "all"
CHOICES: Final = (OPEN, ALL, *STATES)
"""Selections of transactional ids by state."""
ROWS_PER_PAGE: Final = 100
"""Maximum transactional ids per page. One request per coordinator describes them."""
OPEN_DESCRIBED_MAX: Final = 2_000
"""Maximum open transactions that are described to sort them by age. A description takes about 0.1 ms."""
BLOCKED_ROWS_MAX: Final = 200
"""Maximum held-back partitions that a page shows. The others are counted."""
DATED_MAX: Final = 20
"""Maximum hanging transactions whose first batch is read for its timestamp. Each read is one request."""
DATED_DEADLINE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A transactional id.

    Attributes:
        transactional_id: Transactional id.
        state: State at its coordinator.
        producer_id: Producer id.
        coordinator: Node id of its coordinator.
        description: Description by the coordinator. None: it did not describe the id.
    """

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int
    description: TransactionDescription | None

    @property
    def started_ms(self) -> int | None:
        """Start of the open transaction in ms since 1970, or None."""
        return None if self.description is None else self.description.started_ms

    @property
    def times_out_ms(self) -> int | None:
        """Time of the time-out in ms since 1970. None: no transaction is ongoing, or none times out."""
        found = self.description
        if found is None or found.started_ms is None or found.state != "Ongoing" or found.never_times_out:
            return None
        return found.started_ms + found.timeout_ms

    @property
    def in_doubt(self) -> bool:
        """True if only its owner or an operator ends the transaction (KIP-939)."""
        return self.description is not None and self.description.in_doubt


@dataclass(frozen=True, slots=True)
class TransactionSelection:
    """Transactional ids to show: by state, by a part of the id or the exact producer id, and the page from 1."""

    state: str = OPEN
    text: str = ""
    page: int = 1


@dataclass(frozen=True, slots=True)
class TransactionList:
    """A page of transactional ids.

    Attributes:
        rows: Rows of the page: open transactions by age, other ids by name.
        in_doubt: Number of in-doubt transactions among the described ids.
        unreachable: Reason by node id, for each broker whose ids are missing.
    """

    rows: list[TransactionRow]
    paging: Paging
    in_doubt: int
    unreachable: dict[int, str]


async def read_transactions(cluster: Cluster, selection: TransactionSelection) -> TransactionList:
    """Read a page of transactional ids. Coordinators that do not respond are left out."""
    fan_out = FanOut(cluster, tolerant=True)
    states = {OPEN: OPEN_STATES, ALL: ()}.get(selection.state, (selection.state,))
    listed = [
        (node_id, state)
        for node_id, state in await listed_transactions(fan_out, states)
        if matches(selection.text, state.transactional_id, state.producer_id)
    ]
    listed.sort(key=lambda row: row[1].transactional_id)
    is_open = selection.state == OPEN
    paging = paging_of(len(listed), selection.page, ROWS_PER_PAGE)
    shown = listed[:OPEN_DESCRIBED_MAX] if is_open else listed[paging.first : paging.last]
    described = {row.transactional_id: row for row in await described_transactions(fan_out, shown)}
    rows = [
        TransactionRow(
            state.transactional_id,
            state.transaction_state if (row := described.get(state.transactional_id)) is None else row.state,
            state.producer_id,
            node_id,
            row,
        )
        for node_id, state in shown
    ]
    if is_open:
        rows = by_age(rows)[paging.first : paging.last]
    in_doubt = sum(row.in_doubt for row in described.values())
    return TransactionList(rows, paging, in_doubt, fan_out.unreachable)


def matches(text: str, name: str, number: int) -> bool:
    """Return True if `text` is empty, is a part of `name` without regard to case, or is `number`."""
    return text.lower() in name.lower() or text == str(number)


def by_age(rows: Iterable[TransactionRow]) -> list[TransactionRow]:
    """Return the rows with the oldest open transaction first. Rows without a start follow."""
    return sorted(rows, key=lambda row: (row.started_ms is None, row.started_ms or 0, row.transactional_id))


async def read_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Read a transactional id from its coordinator. Raise NotFound if it does not exist."""
    missing = f"transactional id {transactional_id} does not exist"
    coordinator = await _coordinator(cluster, transactional_id)
    if coordinator is None:
        raise NotFound(missing, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    found = await described_transactions(FanOut(cluster), [(coordinator, TransactionState(transactional_id))])
    if not found:
        reason = f"{missing}, or broker {coordinator} is loading its log"
        raise NotFound(reason, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return found[0]


async def _coordinator(cluster: Cluster, transactional_id: str) -> int | None:
    """Return the node id of the coordinator of an id, or None if the id does not exist.

    The coordinator is the leader of a partition of `__transaction_state`. A FindCoordinator request would create the
    topic. A user that may not describe the topic can list the id, if the user may describe it.
    """
    try:
        topic = await read_internal_topic(cluster, TRANSACTION_STATE)
    except Refused as error:
        if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        listed = await listed_transactions(FanOut(cluster, tolerant=True), ())
        return next((node_id for node_id, state in listed if state.transactional_id == transactional_id), None)
    if topic is None:
        return None
    leader = topic.partition(partition_for(transactional_id, len(topic.partitions))).leader
    if leader == NO_LEADER:
        raise ClientError(f"the coordinator of {transactional_id} has no leader", "start the brokers of its replicas")
    return leader


@dataclass(frozen=True, slots=True)
class BlockedRow:
    """A partition whose last stable offset a transaction holds back.

    Attributes:
        topic: Topic.
        partition: Partition index.
        last_stable_offset: First offset of the transaction.
        high_watermark: High watermark.
        state: State of the transaction.
        producer_id: Producer id.
        producer_epoch: Producer epoch.
        transactional_id: Transactional id. None: no coordinator that responded knows the transaction.
        client_id: Client id. None: the broker does not return it.
        address: Address of the client. None: the broker does not return it.
        coordinator: Node id of the coordinator, or None.
        since_ms: Begin of the transaction in ms since 1970. None: unknown.
        last_record_ms: Timestamp of its last record in the partition, in ms since 1970.
        times_out_ms: Time of its time-out in ms since 1970. None: no time-out ends it.
    """

    topic: str
    partition: int
    last_stable_offset: int
    high_watermark: int
    state: HolderState
    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    client_id: str | None
    address: str | None
    coordinator: int | None
    since_ms: int | None
    last_record_ms: int
    times_out_ms: int | None

    @property
    def held_back(self) -> int:
        """Offsets that read_committed consumers cannot read."""
        return self.high_watermark - self.last_stable_offset

    @property
    def is_hanging(self) -> bool:
        """True if no coordinator knows the transaction, so that only an operator can end it."""
        return self.state is HolderState.HANGING


@dataclass(frozen=True, slots=True)
class BlockedList:
    """Held-back partitions: hanging and in-doubt transactions first, then the oldest one."""

    rows: list[BlockedRow]
    total: int
    unreachable: dict[int, str]


async def read_blocked(cluster: Cluster) -> BlockedList:
    """Read the partitions whose read_committed consumers wait for a transaction."""
    result = await blocked_partitions(cluster)
    undated = [row.producer for row in result.rows if row.producer is not None and row.transaction is None][:DATED_MAX]
    begins = await asyncio.gather(
        *(first_timestamp(cluster, TopicPartition(row.topic, row.partition), row.first_offset) for row in undated)
    )
    by_place = {(row.topic, row.partition): begin for row, begin in zip(undated, begins, strict=True)}
    rows = blocked_rows(result.rows, by_place)
    return BlockedList(rows[:BLOCKED_ROWS_MAX], len(rows), result.unreachable)


async def first_timestamp(cluster: Cluster, key: TopicPartition, offset: int) -> int | None:
    """Return the timestamp of the batch at an offset in ms since 1970, or None if it cannot be read in time."""
    with contextlib.suppress(ClientError, Malformed, TimeoutError):
        async with (
            asyncio.timeout(DATED_DEADLINE_S),
            aclosing(
                fetch_range(cluster, key, offset, offset + 1, IsolationLevel.READ_UNCOMMITTED, bytes_max=1)
            ) as all_,
        ):
            async for fetched in all_:
                for header, _ in iter_batches(fetched.data):
                    return header.base_timestamp if header.base_timestamp >= 0 else None
    return None


_URGENCY: Final = {HolderState.HANGING: 0, HolderState.UNKNOWN: 1, HolderState.IN_DOUBT: 2}


def blocked_rows(blocked: Iterable[BlockedPartition], begins: dict[tuple[str, int], int | None]) -> list[BlockedRow]:
    """Convert held-back partitions. Those whose transaction has just ended are left out.

    `begins` has the begin of transactions that no coordinator knows, by partition.
    """
    rows = []
    for row in blocked:
        producer, found = row.producer, row.transaction
        if producer is None:
            continue
        started = begins.get((row.topic, row.partition)) if found is None else found.started_ms
        ends = (
            found.started_ms + found.timeout_ms
            if row.state is HolderState.OPEN and found is not None and found.started_ms is not None
            else None
        )
        rows.append(
            BlockedRow(
                row.topic,
                row.partition,
                row.last_stable_offset,
                row.high_watermark,
                row.state,
                producer.producer_id,
                producer.producer_epoch,
                None if found is None else found.transactional_id,
                producer.client_id if found is None else found.client_id or producer.client_id,
                producer.address if found is None else found.address or producer.address,
                None if found is None else found.coordinator,
                started,
                producer.last_timestamp,
                ends,
            )
        )
    return sorted(
        rows,
        key=lambda row: (_URGENCY.get(row.state, 3), row.since_ms or row.last_record_ms, row.topic, row.partition),
    )
