"""The evaluation's reader of `__consumer_offsets`, tested with records of the broker's serializer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.coordinator.group.records import to_record
from odradek.protocol.records.consumer_group_metadata import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from odradek.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from odradek.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from tests.chaos.group_log import REMOVED, Committed, GroupOffsetsLog
from tests.sim.checkers.batches import read_batches
from tests.sim.workloads.encode import TRANSACTIONAL, encode_batch, encode_marker

if TYPE_CHECKING:
    from odradek.protocol.schema import Message

PARTITION = ("in", 2)


def record(key: Message, value: Message | None, version: int) -> tuple[bytes, bytes | None]:
    serialized = to_record(key, value, version)
    assert serialized.key is not None
    return serialized.key, serialized.value


def offset(committed: int, group: str = "g", version: int = 4) -> tuple[bytes, bytes | None]:
    return record(
        OffsetCommitKey(group=group, topic=PARTITION[0], partition=PARTITION[1]),
        OffsetCommitValue(offset=committed, metadata="m", commit_timestamp=1),
        version,
    )


def log_of(*batches: bytes) -> GroupOffsetsLog:
    log = GroupOffsetsLog()
    log.add(read_batches(b"".join(batches)))
    return log


def batch(*records: tuple[bytes, bytes | None], producer_id: int = -1, at_ms: int = 5) -> bytes:
    attributes = TRANSACTIONAL if producer_id >= 0 else 0
    epoch = 0 if producer_id >= 0 else -1
    return encode_batch(
        list(records),
        timestamp=at_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0 if producer_id >= 0 else -1,
        attributes=attributes,
        base_offset=0,
        leader_epoch=0,
    )


def marker(producer_id: int, *, commit: bool, at_ms: int = 9) -> bytes:
    return encode_marker(
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        commit=commit,
        timestamp=at_ms,
        base_offset=0,
    )


def test_non_transactional_offset_is_committed_by_its_record_and_removed_by_a_tombstone() -> None:
    tombstone = record(OffsetCommitKey(group="g", topic=PARTITION[0], partition=PARTITION[1]), None, 4)
    log = log_of(batch(offset(3, version=3), offset(7)), batch(tombstone))
    assert [commit.offset for commit in log.commits] == [3, 7, REMOVED]
    assert log.commits[0] == Committed("g", PARTITION, 3, 5)
    assert log.final() == {"g": {PARTITION: REMOVED}}


def test_commit_marker_commits_the_last_pending_offset_of_each_partition() -> None:
    log = log_of(batch(offset(3), producer_id=1), batch(offset(5), producer_id=1), batch(offset(9), producer_id=2))
    assert (log.commits, sorted(log.open)) == ([], [1, 2])
    log.add(read_batches(marker(1, commit=True) + marker(2, commit=False)))
    assert log.commits == [Committed("g", PARTITION, 5, 9)]
    assert log.open == {}


def test_generations_and_group_epochs_are_collected() -> None:
    classic = [
        record(
            GroupMetadataKey(group="c"),
            GroupMetadataValue(protocol_type="consumer", generation=generation, protocol=None, leader=None, members=[]),
            version,
        )
        for generation, version in ((1, 3), (1, 3), (4, 3))
    ]
    consumer = [
        record(ConsumerGroupMetadataKey(group_id="m"), ConsumerGroupMetadataValue(epoch=epoch), 0) for epoch in (2, 3)
    ]
    assert log_of(batch(*classic, *consumer)).generations == {"c": {1, 4}, "m": {2, 3}}
