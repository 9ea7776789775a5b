"""Floods for ``make floods``.

Each is an endless sequence of requests, of which the broker may accept a limited number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.broker.fetch.sessions import PARTITIONS_MAX
from odradek.client_shares import ADDRESS_FACTOR
from odradek.coordinator.group.classic.join import PENDING_MAX
from odradek.coordinator.group.memory_accounting import (
    ASSIGNED_BYTES,
    MEMBER_BYTES,
    MEMBERS_BYTES_MAX,
    RESERVED_FRACTION,
    text_bytes,
)
from odradek.coordinator.group.offsets.commit import METADATA_BYTES_MAX, OFFSETS_MAX
from odradek.coordinator.group.state import GROUPS_MAX
from odradek.coordinator.txn.init_producer_id import TRANSACTIONAL_IDS_MAX
from odradek.protocol.batch import build_batch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.hashing import partition_for
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.storage.producers.state import PRODUCERS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from odradek.protocol.schema import Message

TOPIC = "flooded"
TOPIC_PARTITIONS = 100
SHARDS = 10
"""Partitions of `__consumer_offsets` and `__transaction_state`. Each flood uses its own; the witness uses the last."""
SESSION_PARTITIONS = 500
SESSION_MS = 1_800_000
NEVER_MS = 600_000
METADATA = bytes(32 * 1024)
CALLER = ("flood-0", "/127.0.0.1")
"""Client id and host of the members."""
GIVEN_ID = f"{CALLER[0]}-{UUID(int=0)}"
MEMBER_ID = "m"
LONGEST = "m" * 4_096
PRODUCER_IDS = 1 << 40
"""First producer id of the flood. The controller does not assign ids this high."""
JOIN_V, OLD_JOIN_V, COMMIT_V, INIT_V, PRODUCE_V, FETCH_V, HEARTBEAT_V = 9, 3, 8, 4, 9, 12, 1
OK = ErrorCode.NONE
LOADING_IDS = ("COORDINATOR_LOAD_IN_PROGRESS",)
"""Error of InitProducerId while the broker requests the next block of producer ids (KAFKA-14417)."""


@dataclass(frozen=True)
class Limits:
    """Limits of the broker: the real ones, or small ones for tests."""

    groups: int = GROUPS_MAX
    pending: int = PENDING_MAX
    members_bytes: int = MEMBERS_BYTES_MAX
    offsets: int = OFFSETS_MAX
    metadata_bytes: int = METADATA_BYTES_MAX
    transactional_ids: int = TRANSACTIONAL_IDS_MAX
    producers: int = PRODUCERS_MAX
    session_partitions: int = PARTITIONS_MAX


@dataclass(frozen=True)
class Flood:
    """One flood. `outcome` returns the error of a response.

    `limit` requests may be accepted. All others must be refused with `refusal`.
    """

    name: str
    limited_by: str
    limit: int
    refusal: str
    version: int
    requests: Callable[[], Iterator[Message]]
    outcome: Callable[[Any], str]
    accepted: tuple[str, ...] = (OK.name,)
    passing: tuple[str, ...] = ()
    """Outcomes that clients retry immediately."""


def share_of_address(limit: int) -> int:
    """Return the number of entries that the clients of one address may have in a table with this limit."""
    return limit * ADDRESS_FACTOR // (ADDRESS_FACTOR + 1)


def error_code(response: Any) -> str:
    return ErrorCode(response.error_code).name


def floods(limits: Limits) -> list[Flood]:
    """Return all floods, for a broker with these limits."""
    return [*_group_floods(limits), *_offset_floods(limits), *_producer_and_session_floods(limits)]


def _group_floods(limits: Limits) -> list[Flood]:
    member_bytes = MEMBER_BYTES + len(METADATA) + text_bytes("range", GIVEN_ID, *CALLER)
    subscriber_bytes = MEMBER_BYTES + text_bytes(TOPIC, MEMBER_ID, *CALLER)
    for_new_members = limits.members_bytes - limits.members_bytes // RESERVED_FRACTION
    return [
        Flood(
            "JoinGroup, endless groups", f"GROUPS_MAX = {limits.groups:,} per partition", limits.groups,
            "COORDINATOR_NOT_AVAILABLE", JOIN_V, lambda: (join(name) for name in names("join", 0)),
            error_code, ("MEMBER_ID_REQUIRED",),
        ),
        Flood(
            "JoinGroup, one group", f"PENDING_MAX = {limits.pending:,} per group", limits.pending,
            "COORDINATOR_NOT_AVAILABLE", JOIN_V, lambda: (join(next(names("pending", 1))) for _ in forever()),
            error_code, ("MEMBER_ID_REQUIRED",),
        ),
        Flood(
            "JoinGroup, 32 KiB per member", f"MEMBERS_BYTES_MAX = {limits.members_bytes >> 10:,} KiB per partition",
            for_new_members // member_bytes,
            "COORDINATOR_NOT_AVAILABLE", OLD_JOIN_V, lambda: (join(name, METADATA) for name in names("large", 2)),
            error_code,
        ),
        Flood(
            "ConsumerGroupHeartbeat, endless groups", f"GROUPS_MAX = {limits.groups:,} per partition", limits.groups,
            "COORDINATOR_NOT_AVAILABLE", HEARTBEAT_V,
            lambda: (heartbeat(name, "nowhere") for name in names("modern", 3)), error_code,
        ),
        Flood(
            f"ConsumerGroupHeartbeat, {TOPIC_PARTITIONS} partitions per group",
            f"MEMBERS_BYTES_MAX = {limits.members_bytes >> 10:,} KiB per partition",
            (for_new_members - subscriber_bytes) // (subscriber_bytes + ASSIGNED_BYTES * TOPIC_PARTITIONS) + 1,
            "COORDINATOR_NOT_AVAILABLE", HEARTBEAT_V, lambda: (heartbeat(name, TOPIC) for name in names("assigned", 7)),
            error_code,
        ),
    ]  # fmt: skip


def _offset_floods(limits: Limits) -> list[Flood]:
    return [
        Flood(
            "OffsetCommit, endless groups", f"GROUPS_MAX = {limits.groups:,} per partition", limits.groups,
            "INVALID_COMMIT_OFFSET_SIZE", COMMIT_V, lambda: (commit(name, [0]) for name in names("simple", 4)),
            committed,
        ),
        Flood(
            "OffsetCommit, endless offsets", f"OFFSETS_MAX = {limits.offsets:,} per partition",
            limits.offsets // TOPIC_PARTITIONS,
            "INVALID_COMMIT_OFFSET_SIZE", COMMIT_V,
            lambda: (commit(name, range(TOPIC_PARTITIONS)) for name in names("offsets", 5)), committed,
        ),
        Flood(
            "OffsetCommit, 4 KiB of metadata",
            f"METADATA_BYTES_MAX = {limits.metadata_bytes >> 10:,} KiB per partition",
            limits.metadata_bytes // len(LONGEST),
            "INVALID_COMMIT_OFFSET_SIZE", COMMIT_V,
            lambda: (commit(name, [0], metadata=LONGEST) for name in names("metadata", 8)), committed,
        ),
    ]  # fmt: skip


def _producer_and_session_floods(limits: Limits) -> list[Flood]:
    sessions = limits.session_partitions // SESSION_PARTITIONS or 1
    return [
        Flood(
            "InitProducerId, endless transactional ids",
            f"7/8 of TRANSACTIONAL_IDS_MAX = {limits.transactional_ids:,} per partition",
            share_of_address(limits.transactional_ids),
            "COORDINATOR_NOT_AVAILABLE", INIT_V, lambda: (init(name) for name in names("txn", 6)), error_code,
            passing=LOADING_IDS,
        ),
        Flood(
            "InitProducerId, no transactional id", "none: nothing is stored", limits.transactional_ids,
            OK.name, INIT_V, lambda: (init(None) for _ in forever()), error_code, (), LOADING_IDS,
        ),
        Flood(
            "Produce, endless producers", f"7/8 of PRODUCERS_MAX = {limits.producers:,} per partition",
            share_of_address(limits.producers), "NOT_ENOUGH_REPLICAS", PRODUCE_V,
            lambda: (produce(PRODUCER_IDS + number) for number in forever()), produced,
        ),
        Flood(
            f"Fetch, endless sessions of {SESSION_PARTITIONS}",
            f"PARTITIONS_MAX = {limits.session_partitions:,} per broker",
            sessions, "no session", FETCH_V, lambda: (fetch(SESSION_PARTITIONS) for _ in forever()),
            lambda response: "session" if response.session_id else "no session", ("session",),
        ),
    ]  # fmt: skip


def forever() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def names(prefix: str, shard: int) -> Iterator[str]:
    """Generate names whose coordinator partition is `shard`."""
    return (name for name in (f"{prefix}-{number}" for number in forever()) if partition_for(name, SHARDS) == shard)


def join(group: str, metadata: bytes = b"") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", metadata)],
    )


def heartbeat(group: str, topic: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=MEMBER_ID,
        member_epoch=0,
        rebalance_timeout_ms=NEVER_MS,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )


def commit(group: str, partitions: Any, offset: int = 1, metadata: str = "") -> OffsetCommitRequest:
    rows = [OffsetCommitRequestPartition(partition, offset, -1, metadata) for partition in partitions]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=rows)])


def committed(response: Any) -> str:
    errors = {ErrorCode(each.error_code).name for topic in response.topics for each in topic.partitions}
    return errors.pop() if len(errors) == 1 else str(sorted(errors))


def init(transactional_id: str | None) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=NEVER_MS)


def produce(producer_id: int, sequence: int = 0, partition: int = 0) -> ProduceRequest:
    batch = build_batch(
        [(None, b"v", 1_700_000_000_000, ())], producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )
    return ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(TOPIC, partition_data=[PartitionProduceData(partition, batch)])],
    )


def produced(response: Any) -> str:
    return ErrorCode(response.responses[0].partition_responses[0].error_code).name


def fetch(partitions: int) -> FetchRequest:
    """Create a Fetch request for a topic that does not exist. The session contains its partitions nevertheless."""
    wanted = [FetchPartition(partition, fetch_offset=0, partition_max_bytes=1) for partition in range(partitions)]
    return FetchRequest(
        session_epoch=0, max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[FetchTopic("nowhere", partitions=wanted)]
    )
