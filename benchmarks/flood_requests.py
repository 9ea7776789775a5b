"""What floods ask: each is an endless line of requests, of which only so many may leave something in the broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.broker.fetch.sessions import PARTITIONS_MAX
from odradek.coordinator.group.classic.join import PENDING_MAX
from odradek.coordinator.group.memory_accounting import (
    ASSIGNED_BYTES,
    MEMBER_BYTES,
    MEMBERS_BYTES_MAX,
    SPARE_SHARE,
    text_bytes,
)
from odradek.coordinator.group.offsets.commit import METADATA_BYTES_MAX, OFFSETS_MAX
from odradek.coordinator.group.state import GROUPS_MAX
from odradek.coordinator.hashing import partition_for
from odradek.coordinator.txn.init_producer_id import TRANSACTIONAL_IDS_MAX
from odradek.protocol.batch import build_batch
from odradek.protocol.errors import ErrorCode
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
"""Partitions of `__consumer_offsets` and `__transaction_state`: every flood has one of its own, the witness the last."""
SESSION_PARTITIONS = 500
SESSION_MS = 1_800_000
NEVER_MS = 600_000
METADATA = bytes(32 * 1024)
CALLER = ("flood-0", "/127.0.0.1")
"""Client id and host, as members are known by."""
GIVEN_ID = f"{CALLER[0]}-{UUID(int=0)}"
MEMBER_ID = "m"
LONGEST = "m" * 4_096
PRODUCER_IDS = 1 << 40
"""Producer ids that no broker has given out."""
JOIN_V, OLD_JOIN_V, COMMIT_V, INIT_V, PRODUCE_V, FETCH_V, HEARTBEAT_V = 9, 3, 8, 4, 9, 12, 1
OK = ErrorCode.NONE
WAITS_FOR_IDS = ("COORDINATOR_LOAD_IN_PROGRESS",)
"""While the broker asks the controller for the next thousand producer ids (KAFKA-14417)."""


@dataclass(frozen=True)
class Limits:
    """As many as may leave something behind; real ones, or the small ones of a test's broker."""

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
    """`requests` never end. `outcome` is the error of an answer; `limit` requests may be taken, all others are refused."""

    name: str
    limited_by: str
    limit: int
    refusal: str
    version: int
    requests: Callable[[], Iterator[Message]]
    outcome: Callable[[Any], str]
    taken: tuple[str, ...] = (OK.name,)
    passing: tuple[str, ...] = ()
    """What clients try again at once."""


def error_code(answer: Any) -> str:
    return ErrorCode(answer.error_code).name


def floods(limits: Limits) -> list[Flood]:
    member_bytes = MEMBER_BYTES + len(METADATA) + text_bytes("range", GIVEN_ID, *CALLER)
    subscriber_bytes = MEMBER_BYTES + text_bytes(TOPIC, MEMBER_ID, *CALLER)
    for_newcomers = limits.members_bytes - limits.members_bytes // SPARE_SHARE
    asked = limits.session_partitions // SESSION_PARTITIONS or 1
    return [
        Flood(
            "JoinGroup, endless groups", f"GROUPS_MAX = {limits.groups:,} a partition", limits.groups,
            "COORDINATOR_NOT_AVAILABLE", JOIN_V, lambda: (join(name) for name in names("join", 0)),
            error_code, ("MEMBER_ID_REQUIRED",),
        ),
        Flood(
            "JoinGroup, one group", f"PENDING_MAX = {limits.pending:,} a group", limits.pending,
            "COORDINATOR_NOT_AVAILABLE", JOIN_V, lambda: (join(next(names("pending", 1))) for _ in forever()),
            error_code, ("MEMBER_ID_REQUIRED",),
        ),
        Flood(
            "JoinGroup, 32 KiB a member", f"MEMBERS_BYTES_MAX = {limits.members_bytes >> 10:,} KiB a partition",
            for_newcomers // member_bytes,
            "COORDINATOR_NOT_AVAILABLE", OLD_JOIN_V, lambda: (join(name, METADATA) for name in names("large", 2)),
            error_code,
        ),
        Flood(
            "ConsumerGroupHeartbeat, endless groups", f"GROUPS_MAX = {limits.groups:,} a partition", limits.groups,
            "COORDINATOR_NOT_AVAILABLE", HEARTBEAT_V, lambda: (heartbeat(name, "nowhere") for name in names("modern", 3)), error_code,
        ),
        Flood(
            f"ConsumerGroupHeartbeat, {TOPIC_PARTITIONS} partitions a group",
            f"MEMBERS_BYTES_MAX = {limits.members_bytes >> 10:,} KiB a partition",
            (for_newcomers - subscriber_bytes) // (subscriber_bytes + ASSIGNED_BYTES * TOPIC_PARTITIONS) + 1,
            "COORDINATOR_NOT_AVAILABLE", HEARTBEAT_V, lambda: (heartbeat(name, TOPIC) for name in names("assigned", 7)),
            error_code,
        ),
        Flood(
            "OffsetCommit, endless groups", f"GROUPS_MAX = {limits.groups:,} a partition", limits.groups,
            "INVALID_COMMIT_OFFSET_SIZE", COMMIT_V, lambda: (commit(name, [0]) for name in names("simple", 4)),
            committed,
        ),
        Flood(
            "OffsetCommit, endless offsets", f"OFFSETS_MAX = {limits.offsets:,} a partition",
            limits.offsets // TOPIC_PARTITIONS,
            "INVALID_COMMIT_OFFSET_SIZE", COMMIT_V,
            lambda: (commit(name, range(TOPIC_PARTITIONS)) for name in names("offsets", 5)), committed,
        ),
        Flood(
            "OffsetCommit, 4 KiB of metadata", f"METADATA_BYTES_MAX = {limits.metadata_bytes >> 10:,} KiB a partition",
            limits.metadata_bytes // len(LONGEST),
            "INVALID_COMMIT_OFFSET_SIZE", COMMIT_V,
            lambda: (commit(name, [0], metadata=LONGEST) for name in names("metadata", 8)), committed,
        ),
        Flood(
            "InitProducerId, endless transactional ids",
            f"TRANSACTIONAL_IDS_MAX = {limits.transactional_ids:,} a partition", limits.transactional_ids,
            "COORDINATOR_NOT_AVAILABLE", INIT_V, lambda: (init(name) for name in names("txn", 6)), error_code,
            passing=WAITS_FOR_IDS,
        ),
        Flood(
            "InitProducerId, no transactional id", "nothing is kept", limits.transactional_ids,
            OK.name, INIT_V, lambda: (init(None) for _ in forever()), error_code, (), WAITS_FOR_IDS,
        ),
        Flood(
            "Produce, endless producers", f"PRODUCERS_MAX = {limits.producers:,} a partition", limits.producers,
            "NOT_ENOUGH_REPLICAS", PRODUCE_V, lambda: (produce(PRODUCER_IDS + number) for number in forever()), produced,
        ),
        Flood(
            f"Fetch, endless sessions of {SESSION_PARTITIONS}", f"PARTITIONS_MAX = {limits.session_partitions:,} a broker",
            asked, "no session", FETCH_V, lambda: (fetch(SESSION_PARTITIONS) for _ in forever()),
            lambda answer: "session" if answer.session_id else "no session", ("session",),
        ),
    ]  # fmt: skip


def forever() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def names(prefix: str, shard: int) -> Iterator[str]:
    """Those of which the coordinator is partition `shard`."""
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
    told = [OffsetCommitRequestPartition(partition, offset, -1, metadata) for partition in partitions]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=told)])


def committed(answer: Any) -> str:
    errors = {ErrorCode(each.error_code).name for topic in answer.topics for each in topic.partitions}
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


def produced(answer: Any) -> str:
    return ErrorCode(answer.responses[0].partition_responses[0].error_code).name


def fetch(partitions: int) -> FetchRequest:
    """Of a topic that is not there: what is asked for is held in a session all the same."""
    asked = [FetchPartition(partition, fetch_offset=0, partition_max_bytes=1) for partition in range(partitions)]
    return FetchRequest(
        session_epoch=0, max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[FetchTopic("nowhere", partitions=asked)]
    )
