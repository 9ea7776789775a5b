"""Partitions while no file descriptor or no memory is left: clients retry, and no partition goes offline."""

import asyncio
import errno
from pathlib import Path

import pytest

from odradek.broker.coordinators.partition_log import PartitionLogPort
from odradek.broker.partition import registry
from odradek.broker.quota.shortest_first import ShortestFirst
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shard import ShardRecord
from odradek.storage.disk.port import ResourcesExhausted
from odradek.storage.producers.entry import Origin
from tests.support.data_rig import NOW_MS, Rig, batch

E = ErrorCode


def append(rig: Rig) -> int:
    return rig.partition().append(batch(), origin=Origin.CLIENT, now_ms=NOW_MS).first_offset


async def test_append_without_memory_is_refused_and_succeeds_later(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig)
    rig.disk.failing["write"] = errno.ENOMEM
    with pytest.raises(Refusal) as caught:
        append(rig)
    assert (caught.value.error, rig.partition().leads) == (E.NOT_ENOUGH_REPLICAS, True)
    assert "no free file descriptor, memory or disk space" in str(caught.value.message)
    rig.disk.failing.clear()
    assert append(rig) == 1


async def test_read_without_memory_is_refused_and_succeeds_later(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig)
    partition = rig.partition()
    partition.log.segments.active.drop_recent()
    rig.disk.failing["read"] = errno.ENOMEM
    with pytest.raises(Refusal) as caught:
        partition.read(0, max_bytes=1_000, limit=1, min_one_batch=True)
    assert (caught.value.error, partition.leads) == (E.OFFSET_NOT_AVAILABLE, True)
    rig.disk.failing.clear()
    assert partition.read(0, max_bytes=1_000, limit=1, min_one_batch=True)


async def test_follower_without_memory_stays_a_follower(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", leader=2)
    partition = rig.partition()
    rig.disk.failing["write"] = errno.ENOMEM
    with pytest.raises(Refusal) as caught:
        partition.replicate(batch(), leader_epoch=0, now_ms=NOW_MS)
    assert (caught.value.error, partition.follows) == (E.NOT_ENOUGH_REPLICAS, True)
    rig.disk.failing.clear()
    assert partition.replicate(batch(), leader_epoch=0, now_ms=NOW_MS)


async def test_partition_without_a_descriptor_is_hosted_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "RESOURCE_RETRY_S", 0.0)
    rig = Rig(tmp_path)
    rig.disk.failing["open"] = errno.EMFILE
    rig.topic("t", 2)
    for index in range(2):
        with pytest.raises(Refusal) as caught:
            rig.partitions.find("t", index)
        assert caught.value.error is E.NOT_LEADER_OR_FOLLOWER
    assert len(rig.tasks) == 1
    rig.disk.failing.clear()
    await asyncio.gather(*rig.tasks)
    assert [partition.index for partition in rig.partitions.led("t")] == [0, 1]
    assert append(rig) == 0


async def test_partition_in_old_checkpoints_is_hosted_when_they_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "RESOURCE_RETRY_S", 0.0)
    rig = Rig(tmp_path)
    rig.logs.remembered = {("t", 0): None}
    rig.logs.forgetting_fails = ResourcesExhausted(errno.ENOSPC, "injected")
    rig.topic("t")
    await rig.tasks[0]
    with pytest.raises(Refusal) as caught:
        rig.partitions.find("t", 0)
    assert caught.value.error is E.NOT_LEADER_OR_FOLLOWER
    rig.logs.forgetting_fails = None
    for task in rig.tasks:  # one retry adds the next task
        await task
    assert append(rig) == 0


async def test_shard_stays_loaded_if_its_append_finds_no_memory(tmp_path: Path) -> None:
    """The engine drops its shard for an OSError, because log and memory could differ. Here they do not."""
    rig = Rig(tmp_path)
    rig.topic("t")
    log = PartitionLogPort(rig.partition(), read_bytes=1_000, load_queue=ShortestFirst(1))
    rig.disk.failing["write"] = errno.ENOMEM
    with pytest.raises(Refusal) as caught:
        log.append([ShardRecord(b"k", b"v")], NOW_MS)
    assert caught.value.error is E.NOT_ENOUGH_REPLICAS
    rig.disk.failing["write"] = errno.EIO
    with pytest.raises(OSError, match="injected"):
        log.append([ShardRecord(b"k", b"v")], NOW_MS)
