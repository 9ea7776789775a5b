"""Fetch sessions of followers at the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
