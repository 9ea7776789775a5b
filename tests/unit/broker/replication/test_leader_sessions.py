"""Fetch sessions of followers at the leader."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from odradek.broker.replication import leader_sessions
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.records.metadata import PartitionChangeRecord
from tests.support.data_rig import NODE, Rig

if TYPE_CHECKING:
    from pathlib import Path

FOLLOWER = 2


async def test_fetch_of_a_removed_caught_up_follower_is_served(tmp_path: Path) -> None:
    """The follower fetches before it applies its removal from the partition. It was not in the ISR."""
    rig = Rig(tmp_path)
    topic_id = rig.topic("t", replicas=(NODE, FOLLOWER))
    rig.play(PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[NODE]))
    partition = FetchPartition(partition=0, current_leader_epoch=0, fetch_offset=0)
    request = FetchRequest(session_epoch=0, topics=[FetchTopic(topic_id=topic_id, partitions=[partition])])
    session = rig.sessions.receive(request, FOLLOWER, 1, rig.clock.now_ms, by_id=True)
    assert session.out_of_sync
    rig.play(PartitionChangeRecord(topic_id=topic_id, partition_id=0, replicas=[NODE]))
    again = FetchRequest(session_id=session.id, session_epoch=1)
    assert rig.sessions.receive(again, FOLLOWER, 1, rig.clock.now_ms, by_id=True) is session
    term = rig.partition().leader_term
    assert term is not None
    assert term.replicas.pending_change is None


def full_fetch(*topic_ids: UUID, count: int, session_id: int = 0, epoch: int = 0) -> FetchRequest:
    """Return a fetch of `count` partitions of each topic."""
    partitions = [FetchPartition(partition=index, current_leader_epoch=0) for index in range(count)]
    topics = [FetchTopic(topic_id=topic_id, partitions=list(partitions)) for topic_id in topic_ids]
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics)


async def test_unknown_partitions_of_one_follower_are_bounded_and_known_ones_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_sessions, "SPARE_SLOTS_MAX", 20)
    rig = Rig(tmp_path)
    known = rig.topic("t", 5, replicas=(NODE, FOLLOWER))
    unknown = UUID(int=77)

    def receive(request: FetchRequest, replica: int = FOLLOWER) -> leader_sessions.ReplicaSession:
        return rig.sessions.receive(request, replica, 1, rig.clock.now_ms, by_id=True)

    first = receive(full_fetch(unknown, count=20))
    second = receive(full_fetch(known, count=5))
    assert len(rig.sessions) == 2, "20 unknown partitions and those of this broker fit"
    third = receive(full_fetch(unknown, count=20))
    assert [session.id for session in rig.sessions] == [second.id, third.id], "the oldest session makes way"
    assert not first.slots
    with pytest.raises(Refusal) as refused:
        receive(full_fetch(unknown, count=26))
    assert refused.value.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(rig.sessions) == 0
    assert not rig.sessions._held
    assert not rig.sessions._awaiting_election, "a refused session leaves nothing"
    again = receive(full_fetch(known, count=5))
    assert [slot.error for slot in again.slots.values()] == [ErrorCode.NONE] * 5
    with pytest.raises(Refusal):
        receive(full_fetch(unknown, count=21, session_id=again.id, epoch=1))
    assert len(rig.sessions) == 0, "an incremental fetch has the same bound"


async def test_slots_of_one_follower_do_not_count_for_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_sessions, "SPARE_SLOTS_MAX", 20)
    rig = Rig(tmp_path)
    for replica in (FOLLOWER, 3):
        rig.sessions.receive(full_fetch(UUID(int=77), count=20), replica, 1, rig.clock.now_ms, by_id=True)
    assert len(rig.sessions) == 2
    for session in rig.sessions:
        rig.sessions.close(session.id)
    assert not rig.sessions._held


async def test_one_fetch_opens_a_limited_number_of_logs_and_the_others_are_fetched_once_they_are_open(
    tmp_path: Path,
) -> None:
    count = 10 * leader_sessions.LOGS_CREATED_PER_REQUEST_MAX
    rig = Rig(tmp_path)
    rig.partitions.on_elected(rig.sessions.elected)
    topic_id = rig.topic("t", count, replicas=(NODE, FOLLOWER))
    open_before = rig.partitions.count
    session = rig.sessions.receive(full_fetch(topic_id, count=count), FOLLOWER, 1, rig.clock.now_ms, by_id=True)
    assert open_before + leader_sessions.LOGS_CREATED_PER_REQUEST_MAX == rig.partitions.count < count
    assert sum(slot.transient for slot in session.slots.values()) == count - rig.partitions.count
    while rig.partitions.count < count:
        await asyncio.sleep(0)
    rig.sessions.has_urgent(session, rig.clock.now_ms, count)
    assert [slot.error for slot in session.slots.values()] == [ErrorCode.NONE] * count
