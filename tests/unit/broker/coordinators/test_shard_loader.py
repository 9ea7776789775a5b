"""Shard loader: new logs are opened for requests, and a standby cache is valid for one election."""

from __future__ import annotations

from asyncio import ensure_future, sleep
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from odradek.broker.coordinators.image_ports import CoordinatorTopic
from odradek.broker.coordinators.log_replay import RECORDS_PER_SLICE
from odradek.broker.coordinators.partition_log import PartitionLogPort
from odradek.broker.coordinators.shard_loader import CoordinatorShards, leads_open
from odradek.broker.partition.registry import CREATE_LOG_COST, ROLE_CHANGES_PER_SLICE
from odradek.broker.quota.shortest_first import ShortestFirst
from odradek.cluster.metadata.image import DIRECTORY_UNASSIGNED
from odradek.protocol.batch import end_txn_marker
from odradek.protocol.records.metadata import PartitionRecord
from odradek.runtime.shard import Marker, ShardRecord
from odradek.storage.config import DAY_MS, LogConfig
from odradek.storage.producers.entry import Origin
from tests.support.cleaning import clean
from tests.support.data_rig import EIO, NODE, NOW_MS, Rig

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    import pytest

    from odradek.cluster.metadata.cache import MetadataCache
    from odradek.runtime.log_port import ShardLog

Entries = list[tuple[bytes | None, bytes | None] | Marker]


class Coordinator:
    """In-memory coordinator that keeps the log of its last election."""

    def __init__(self) -> None:
        self.log: ShardLog | None = None

    def on_leadership(self, shard: int, leader_epoch: int, log: ShardLog) -> Coroutine[Any, Any, None]:
        self.log = log
        return sleep(0)

    def on_resignation(self, shard: int, leader_epoch: int | None = None) -> None:
        """Do nothing: the log stays readable."""

    async def loaded(self) -> Entries:
        entries: Entries = []
        assert self.log is not None
        await self.log.replay(
            lambda _, entry, __: entries.append(entry if isinstance(entry, Marker) else (entry.key, entry.value))
        )
        return entries


class Elections(Rig):
    """One replica of `t-0` that changes between leader and follower."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, config=LogConfig(segment_bytes=250, cleanup_policy=("compact",)))
        self.coordinator_of_t = Coordinator()
        self.shards = CoordinatorShards(
            "t", self.coordinator_of_t, self.partitions, self.spawn, self.clock, load_bytes=1_000, base_sequence=0
        )
        self.partitions.listen("t", self.shards)
        self.epoch = 0
        self.topic("t")

    def led_by(self, node: int) -> None:
        self.epoch += 1
        self.play(
            PartitionRecord(
                partition_id=0,
                topic_id=UUID(int=100),
                replicas=[NODE],
                isr=[NODE],
                leader=node,
                leader_epoch=self.epoch,
                partition_epoch=self.epoch,
                directories=[DIRECTORY_UNASSIGNED],
            )
        )

    def write(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None:
        partition = self.partition()
        port = PartitionLogPort(partition, read_bytes=1, load_queue=ShortestFirst(1), base_sequence=0)
        if producer_id < 0:
            port.append([ShardRecord(key, value)], NOW_MS)
        else:
            guard = partition.log.producers.start_verification(producer_id, 0, 0, supports_epoch_bump=False)
            port.append([ShardRecord(key, value, producer_id, 0)], NOW_MS, guard)


async def test_standby_cache_after_a_leader_term_starts_empty(tmp_path: Path) -> None:
    """While the broker led, compaction removed tombstones and markers. A later read of the log does not return them."""
    rig = Elections(tmp_path)
    log = rig.partition().log
    rig.write(b"deleted", b"1")
    rig.write(b"moved", b"of a transaction", 7)
    rig.led_by(2)
    await rig.shards.update_standby()
    rig.led_by(NODE)
    marker = end_txn_marker(producer_id=7, producer_epoch=0, coordinator_epoch=0, commit=True, timestamp=NOW_MS)
    rig.partition().append(marker, origin=Origin.COORDINATOR, now_ms=NOW_MS)
    rig.write(b"deleted", None)
    for day in range(3):
        for number in range(6):
            rig.write(b"moved", b"%d" % number)
        log.producers.expire(NOW_MS + 2 * DAY_MS, DAY_MS)
        await clean(log, now_ms=NOW_MS + day * DAY_MS)
        await rig.shards.update_standby()
    rig.led_by(2)
    await rig.shards.update_standby()
    rig.led_by(NODE)
    loaded = await rig.coordinator_of_t.loaded()
    assert loaded == [(b"moved", b"5")]


async def test_election_during_an_update_of_the_standby_cache_loads_all_records(tmp_path: Path) -> None:
    rig = Elections(tmp_path)
    for number in range(RECORDS_PER_SLICE + 1):
        rig.write(b"k%d" % number, b"1")
    rig.led_by(2)
    following = ensure_future(rig.shards.update_standby())
    await sleep(0)
    rig.led_by(NODE)
    assert len(await rig.coordinator_of_t.loaded()) == RECORDS_PER_SLICE + 1
    await following


async def test_shard_whose_new_log_cannot_be_opened_is_assigned_and_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    topic = CoordinatorTopic("t", cast("MetadataCache", rig.metadata), partitions=50)
    count = ROLE_CHANGES_PER_SLICE // CREATE_LOG_COST + 2
    rig.topic("t", count)

    def failing(*_arguments: Any) -> Any:
        raise OSError(EIO, "input/output error")

    assert rig.partitions.awaits_log("t", count - 1)
    assert leads_open(rig.partitions, topic, NODE, count - 1)
    assert not rig.partitions.awaits_log("t", count - 1)
    monkeypatch.setattr(rig.logs, "create", failing)
    assert leads_open(rig.partitions, topic, NODE, count - 2)
    assert rig.partitions.get("t", count - 2) is None
    assert not leads_open(rig.partitions, topic, NODE, count)
    assert not leads_open(rig.partitions, topic, NODE + 1, 0)
