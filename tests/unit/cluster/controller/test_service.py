"""The controller in a node: Raft driver, shard engine, metadata publisher and broker lifecycle together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from odradek.cluster.controller.log_after import LogAfter
from odradek.cluster.controller.messages.topics import NewTopic, TopicName
from odradek.cluster.metadata.errors import UnsupportedMetadata
from odradek.cluster.raft.batches import encode_records
from odradek.cluster.raft.delivery import RECORDS_PER_PART
from odradek.cluster.raft.messages import HardState
from odradek.protocol.errors import ErrorCode, Refusal
from tests.support.controller_node import NO_LEVELS, ControllerNode
from tests.support.raft_memory import MemoryRaftStorage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.cluster.metadata.delta import MetadataDelta
    from odradek.cluster.metadata.image import MetadataImage


class Node(ControllerNode):
    def __init__(
        self, storage: MemoryRaftStorage, incarnation: int = 7, *, levels: Mapping[str, int] = NO_LEVELS
    ) -> None:
        super().__init__(storage, incarnation, levels=levels)
        self.disk = storage


async def started(storage: MemoryRaftStorage, incarnation: int = 7) -> Node:
    node = Node(storage, incarnation)
    await node.start()
    return node


async def test_response_follows_the_publication_of_the_change() -> None:
    node = await started(MemoryRaftStorage())
    (created,) = await node.service.create_topics([NewTopic("orders", 4)])
    topic = node.cache.image.topic("orders")
    assert topic is not None
    assert topic.topic_id == created.topic_id
    assert [partition.leader for partition in topic.partitions.values()] == [1, 1, 1, 1]
    await node.service.delete_topics([TopicName("orders")])
    assert node.cache.image.topic("orders") is None
    await node.stop()


async def test_restart_restores_the_metadata_and_raises_every_leader_epoch() -> None:
    node = await started(MemoryRaftStorage())
    await node.service.create_topics([NewTopic("orders", 2, configs=(("retention.ms", "5"),))])
    block = await node.service.allocate_producer_ids(1, node.lifecycle.broker_epoch)
    before = node.cache.image
    disk_after_crash = node.disk.crash()
    await node.kill()
    restarted = await started(disk_after_crash, 8)
    after = restarted.cache.image
    assert after.topics["orders"].topic_id == before.topics["orders"].topic_id
    assert after.topic_config("orders") == {"retention.ms": "5"}
    # The leader is -1 when the former incarnation is replaced, and 1 when the new one is unfenced.
    assert [p.leader_epoch for p in after.topics["orders"].partitions.values()] == [2, 2]
    assert restarted.driver.core.epoch == 2
    next_block = await restarted.service.allocate_producer_ids(1, restarted.lifecycle.broker_epoch)
    assert next_block.first == block.first + block.length
    await restarted.stop()


async def test_clean_stop_removes_all_leaders() -> None:
    node = await started(MemoryRaftStorage())
    await node.service.create_topics([NewTopic("orders", 2)])
    await node.stop()
    partitions = node.cache.image.topics["orders"].partitions.values()
    assert [(p.leader, p.isr) for p in partitions] == [(-1, ()), (-1, ())]
    assert node.cache.image.brokers[1].fenced


async def test_unsynced_change_is_neither_acknowledged_nor_published() -> None:
    node = await started(MemoryRaftStorage())
    node.disk.sync_allowed = asyncio.Event()
    creation = asyncio.ensure_future(node.service.create_topics([NewTopic("orders", 1)]))
    duplicate = asyncio.ensure_future(node.service.create_topics([NewTopic("orders", 1)]))
    for _ in range(20):
        await asyncio.sleep(0)
    # The second reply depends on the first, uncommitted change, so it waits, too.
    assert not creation.done()
    assert not duplicate.done()
    assert node.cache.image.topic("orders") is None
    survivors = node.disk.crash()
    node.disk.sync_allowed.set()
    await creation
    (second,) = await duplicate
    assert second.error is ErrorCode.TOPIC_ALREADY_EXISTS
    assert node.cache.image.topic("orders") is not None
    await node.stop()
    # After a power cut before the sync, the topic does not exist.
    restarted = await started(survivors, 8)
    assert restarted.cache.image.topic("orders") is None
    await restarted.stop()


async def test_appends_during_a_sync_share_the_next_sync() -> None:
    node = await started(MemoryRaftStorage())
    sync_allowed = node.disk.sync_allowed = asyncio.Event()
    first = asyncio.ensure_future(node.service.create_topics([NewTopic("t0", 1)]))
    for _ in range(20):
        await asyncio.sleep(0)
    before = node.disk.syncs
    later = [asyncio.ensure_future(node.service.create_topics([NewTopic(f"t{n}", 1)])) for n in range(1, 6)]
    for _ in range(20):
        await asyncio.sleep(0)
    sync_allowed.set()
    for number, waiting in enumerate((first, *later)):
        (created,) = await waiting
        assert created.error is ErrorCode.NONE
        assert node.cache.image.topic(f"t{number}") is not None
    assert node.disk.syncs == before + 2
    await node.stop()


async def test_fence_and_unfence_raise_the_leader_epoch() -> None:
    node = await started(MemoryRaftStorage())
    await node.service.create_topics([NewTopic("orders", 1)])
    leaders: list[tuple[int, int]] = []

    def watch(delta: MetadataDelta, image: MetadataImage) -> None:
        leaders.extend((p.leader, p.leader_epoch) for p in image.topics["orders"].partitions.values())

    node.cache.subscribe(watch)
    await node.service.fence_broker(1)
    await node.service.unfence_broker(1)
    assert leaders == [(-1, 1), (1, 2)]
    await node.stop()


async def test_disk_error_ends_the_node_and_acknowledges_no_change() -> None:
    node = await started(MemoryRaftStorage())
    node.disk.broken = True
    with pytest.raises(Refusal) as duplicate:
        await node.service.create_topics([NewTopic("orders", 1)])
    assert duplicate.value.error is ErrorCode.NOT_CONTROLLER
    assert [type(error) for _, error in node.failures] == [OSError]
    assert node.cache.image.topic("orders") is None
    await node.tasks.cancel_all()


async def test_calls_without_an_active_controller_are_refused() -> None:
    node = Node(MemoryRaftStorage())
    with pytest.raises(Refusal) as duplicate:
        await node.service.create_topics([NewTopic("orders", 1)])
    assert duplicate.value.error is ErrorCode.NOT_CONTROLLER


async def test_unknown_record_type_ends_the_node_and_is_named() -> None:
    unknown = encode_records([(None, b"\x01\x1e\x00")], base_offset=0, epoch=1, now_ms=1_000)
    storage = MemoryRaftStorage([unknown], HardState(1, 1), synced=1)
    node = Node(storage)
    failed = asyncio.Event()
    report = node.fail

    def fail(name: str, error: BaseException) -> None:
        report(name, error)
        failed.set()

    node.driver._on_failure = fail
    node.service._on_failure = fail
    await node.driver.start()
    await asyncio.wait_for(failed.wait(), 10)
    _, error = node.failures[0]
    assert isinstance(error, UnsupportedMetadata)
    assert str(error) == "metadata record type 30 is not supported by this version"
    assert not node.service.is_active
    await node.tasks.cancel_all()


async def test_unexpected_exception_of_a_command_does_not_stop_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next controller would fail as well, and one request would stop all voters."""
    node = await started(MemoryRaftStorage())
    controller = node.service._controller
    assert controller is not None
    with monkeypatch.context() as patch:
        patch.setattr(controller, "decide", lambda *_: int("x"))
        with pytest.raises(Refusal, match="UNKNOWN_SERVER_ERROR"):
            await node.service.create_topics([NewTopic("orders", 4)])
    assert [type(bug) for _, bug in node.bugs] == [ValueError]
    assert node.failures == []
    (created,) = await node.service.create_topics([NewTopic("orders", 4)])
    assert created.error is ErrorCode.NONE
    await node.stop()


async def test_initial_feature_levels_apply_to_a_new_cluster_only() -> None:
    node = Node(MemoryRaftStorage(), levels={"transaction.version": 1})
    await node.start()
    assert node.cache.image.feature("transaction.version") == 1
    disk_after_crash = node.disk.crash()
    await node.stop()
    restarted = Node(disk_after_crash, 8, levels={"transaction.version": 2})  # no effect: the cluster exists
    await restarted.start()
    assert restarted.cache.image.feature("transaction.version") == 1
    await restarted.stop()


async def test_new_active_controller_replays_only_records_after_the_published_image() -> None:
    node = await started(MemoryRaftStorage())
    await node.service.create_topics([NewTopic("orders", 4)])
    visited: list[int] = []
    log = LogAfter(node.driver, node.cache.image.offset - 2)
    await log.replay(lambda offset, *_: visited.append(offset))
    assert visited == [node.cache.image.offset - 1, node.cache.image.offset]
    await node.stop()


async def test_other_tasks_run_while_a_controller_replays_a_long_log() -> None:
    node = await started(MemoryRaftStorage())
    await node.service.create_topics([NewTopic("orders", 2 * RECORDS_PER_PART)])
    visited: list[int] = []
    replay = asyncio.ensure_future(node.driver.replay(lambda offset, *_: visited.append(offset)))
    per_turn = []
    while not replay.done():
        before = len(visited)
        await asyncio.sleep(0)
        per_turn.append(len(visited) - before)
    assert visited[-1] == node.driver.log_end_offset - 1
    assert max(per_turn) <= RECORDS_PER_PART
    await node.stop()
