"""Metadata snapshots: their records, creation, and use at a start or by a replica that is far behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.cluster.metadata import records as r
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek.cluster.metadata.snapshot import (
    BATCH_BYTES_MAX,
    RECORDS_PER_BATCH_MAX,
    delta_between,
    image_records,
    snapshot_batches,
)
from odradek.cluster.metadata.snapshotter import SnapshotConfig, Snapshotter
from odradek.cluster.raft.messages import EpochEnd
from odradek.cluster.raft.snapshot_reader import read_snapshot
from odradek.protocol.errors import Malformed
from odradek.runtime.shard import ShardRecord
from tests.support.controller_node import LoopClock
from tests.support.raft_memory import MemoryRaftStorage
from tests.unit.cluster.metadata.test_image import COMMANDS, run
from tests.unit.cluster.raft.test_driver import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.cluster.raft.batches import LogBatch

SNAPSHOT = EpochEnd(3, 100)


def replayed(image: MetadataImage) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in image_records(image):
        delta.replay(image.offset, image.epoch, r.decode_record(r.encode_record(record)))
    delta.skip_to(image.offset, image.epoch)
    return delta.build()


def rich_image() -> MetadataImage:
    """Return an image with a value in every field, including fields that this version rarely sets."""
    delta = MetadataDelta(EMPTY_IMAGE)
    topic_id, directory = UUID(int=700), UUID(int=1_000)
    records: list[r.MetadataRecord] = [
        r.FeatureLevelRecord("metadata.version", 33),
        r.FeatureLevelRecord("a.feature", 2),
        r.RegisterBrokerRecord(4, incarnation_id=UUID(int=7), broker_epoch=15, fenced=True),
        r.RegisterBrokerRecord(
            4,
            incarnation_id=UUID(int=9),
            broker_epoch=17,
            end_points=[r.BrokerEndpoint("A", "host", 9092, 1)],
            features=[r.BrokerFeature("f", 1, 3)],
            rack="r1",
            fenced=True,
            in_controlled_shutdown=True,
            log_dirs=[directory],
            cordoned_log_dirs=[directory],
        ),
        r.RegisterControllerRecord(
            5,
            incarnation_id=UUID(int=8),
            end_points=[r.ControllerEndpoint("C", "host", 9093)],
            features=[r.ControllerFeature("g", 0, 2)],
        ),
        r.TopicRecord("t", topic_id),
        r.PartitionRecord(0, topic_id, [4, 5, 6], [4], [6], [5], 4, 1, 7, 8, [directory] * 3, [5], [6]),
        r.PartitionRecord(1, topic_id, [4], [4], leader=4, leader_epoch=0, partition_epoch=0, directories=[directory]),
        r.ConfigRecord(2, "t", "retention.ms", "1"),
        r.ConfigRecord(4, "", "log.retention.ms", "2"),
        r.ProducerIdsRecord(4, 17, 5_000),
        r.ClientQuotaRecord(
            [r.ClientQuotaEntity("user", "u"), r.ClientQuotaEntity("client-id", None)], "producer_byte_rate", 7.5
        ),
        r.AccessControlEntryRecord(UUID(int=900), 2, "t", 4, "User:u", "*", 3, 2),
        r.UserScramCredentialRecord("u", 1, b"salt", b"stored key", b"server key", 4_096),
        r.UserScramCredentialRecord("u", 2, b"salt", b"stored key", b"server key", 8_192),
        r.DelegationTokenRecord("User:u", "User:v", ["User:w", "User:x"], 100, 300, 200, "token"),
    ]
    for offset, record in enumerate(records):
        delta.replay(offset, 3, record)
    return delta.build()


@settings(max_examples=60, deadline=None)
@given(st.lists(COMMANDS, max_size=12), st.integers(0, 5))
def test_records_of_an_image_give_the_same_image(commands: list[object], seed: int) -> None:
    image = run(commands, seed).core.state.image  # type: ignore[arg-type]
    assert replayed(image) == image
    assert list(replayed(image).topics) == list(image.topics)


def test_records_of_an_image_cover_every_field() -> None:
    image = rich_image()
    assert replayed(image) == image
    for name in MetadataImage.__dataclass_fields__:
        assert getattr(image, name) != getattr(EMPTY_IMAGE, name), name
    for partition_field in type(image.topics["t"].partitions[0]).__dataclass_fields__:
        assert partition_field == "index" or getattr(image.topics["t"].partitions[0], partition_field)
    assert image.brokers[4].lineage == (15,)


@settings(max_examples=60, deadline=None)
@given(st.lists(COMMANDS, max_size=8), st.lists(COMMANDS, max_size=8))
def test_delta_between_two_images_leads_from_one_to_the_other(first: list[object], more: list[object]) -> None:
    base = run(first, 1).core.state.image  # type: ignore[arg-type]
    image = replace(run(more, 2).core.state.image, offset=base.offset + 5)  # type: ignore[arg-type]
    delta = delta_between(base, image)
    assert delta.build() == image
    assert {topic.topic_id for topic in delta.deleted_topics()} == set(base.topics_by_id) - set(image.topics_by_id)
    assert set(delta.created_topics()) == set(image.topics_by_id) - set(base.topics_by_id)


# ---- bytes ----------------------------------------------------------------------------------------------------------


def encoded_snapshot(image: MetadataImage) -> bytes:
    return b"".join(snapshot_batches(image, SNAPSHOT, last_contained_ms=5, now_ms=6))


async def read(data: bytes) -> list[LogBatch]:
    storage = MemoryRaftStorage(files={SNAPSHOT: data})
    return [batch async for batches in read_snapshot(storage, SNAPSHOT) for batch in batches]


async def test_snapshot_bytes_are_read_back() -> None:
    image = rich_image()
    batches = await read(encoded_snapshot(image))
    values = [value for batch in batches for _, value in batch.records]
    assert values == [r.encode_record(record) for record in image_records(image)]
    assert {batch.epoch for batch in batches} == {SNAPSHOT.epoch}


async def test_batches_of_large_records_are_small() -> None:
    """Clients choose names and values of 32 KiB. Readers refuse batches of more than 8 MiB."""
    delta = MetadataDelta(EMPTY_IMAGE)
    for number in range(RECORDS_PER_BATCH_MAX):
        delta.replay(number, 1, r.ConfigRecord(32, f"{number}".ljust(32_000, "g"), "name", "v" * 32_000))
    image = delta.build()
    batches = list(snapshot_batches(image, SNAPSHOT, last_contained_ms=1, now_ms=2))
    assert max(map(len, batches)) < BATCH_BYTES_MAX + 10_000
    assert len(batches) > 10


async def test_large_image_is_written_in_small_batches() -> None:
    features = {f"f{number}": 1 for number in range(3 * RECORDS_PER_BATCH_MAX)}
    batches = await read(encoded_snapshot(replace(EMPTY_IMAGE, features=features)))
    assert [len(batch.records) for batch in batches] == [RECORDS_PER_BATCH_MAX] * 3
    assert [batch.base_offset for batch in batches] == [1, 1 + RECORDS_PER_BATCH_MAX, 1 + 2 * RECORDS_PER_BATCH_MAX]


@pytest.mark.parametrize("length", [1, 40, 75, 76, 77, -1, -40, -76])
async def test_truncated_snapshot_is_refused(length: int) -> None:
    with pytest.raises(Malformed):
        await read(encoded_snapshot(rich_image())[:length])


async def test_snapshot_with_data_after_its_end_is_refused() -> None:
    data = encoded_snapshot(rich_image())
    with pytest.raises(Malformed):
        await read(data + data)


async def test_flipped_bit_is_detected_or_harmless() -> None:
    image, data = rich_image(), encoded_snapshot(rich_image())
    for position in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        try:
            batches = await read(bytes(damaged))
        except Malformed:
            continue
        values = [value for batch in batches for _, value in batch.records]
        assert values == [r.encode_record(record) for record in image_records(image)]


# ---- three nodes ----------------------------------------------------------------------------------------------------


class SetClock(LoopClock):
    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_us(self) -> int:
        return self.monotonic_ms() * 1_000


class Replicas(Cluster):
    """Raft drivers with metadata caches and snapshotters."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self.caches: dict[int, MetadataCache] = {}
        self.limits = SnapshotConfig(bytes_max, 0)
        self.clock: LoopClock = LoopClock()

    def prepare(self, node: int) -> None:
        cache = self.caches[node] = MetadataCache()
        cache.subscribe(lambda *_: self.changed.set())
        driver = self.drivers[node]
        driver.on_committed(cache.on_committed, cache.prepare)
        driver.on_snapshot(cache.on_snapshot)
        Snapshotter(driver, cache, self.clock, self.tasks, lambda _, error: self.failures.append(error), self.limits)

    async def make_topics(self, first: int, count: int) -> None:
        leader = await self.leader()
        for number in range(first, first + count):
            record = r.encode_record(r.TopicRecord(f"topic-{number}", UUID(int=1_000 + number)))
            leader.append([ShardRecord(None, record)], 1_000)
            await asyncio.sleep(0)

    def all_have(self, count: int, nodes: Sequence[int]) -> bool:
        return all(len(self.caches[node].image.topics) == count for node in nodes)


async def test_snapshot_restores_a_replica_far_behind_and_a_restarted_node() -> None:
    cluster = Replicas(bytes_max=600)
    await cluster.start([1, 2, 3])
    leader = await cluster.leader()
    lagging = next(node for node in cluster.drivers if node != leader.node_id)
    current_nodes = [node for node in cluster.drivers if node != lagging]
    await cluster.make_topics(0, 1)
    await cluster.until(lambda: cluster.all_have(1, [1, 2, 3]))
    cluster.isolated = [lagging]
    for round_ in range(6):
        await cluster.make_topics(1 + 10 * round_, 10)
        await cluster.until(lambda round_=round_: cluster.all_have(11 + 10 * round_, current_nodes))  # type: ignore[misc]
    await cluster.until(lambda: all(cluster.storages[node].start > 0 for node in current_nodes))
    assert all(len(cluster.storages[node].files) == 2 for node in current_nodes)

    cluster.isolated = []
    await cluster.until(lambda: cluster.all_have(61, [1, 2, 3]))
    assert cluster.storages[lagging].start > 0
    images = [cluster.caches[node].image for node in (1, 2, 3)]
    assert images[0].topics == images[1].topics == images[2].topics

    storage = cluster.storages[lagging]
    await cluster.drivers[lagging].stop()
    cluster.storages[lagging] = storage.crash()
    await cluster.start_node(lagging, [1, 2, 3])
    await cluster.until(lambda: cluster.all_have(61, [lagging]))
    replayed_records: list[tuple[int, bytes | None]] = []
    await cluster.drivers[lagging].replay(lambda offset, entry, _: replayed_records.append((offset, entry.value)))  # type: ignore[union-attr]
    names = [r.decode_record(value) for _, value in replayed_records]
    assert len([name for name in names if isinstance(name, r.TopicRecord)]) == 61
    assert [offset for offset, _ in replayed_records] == sorted(offset for offset, _ in replayed_records)
    await cluster.stop()


async def test_failed_snapshot_is_repeated() -> None:
    cluster = Replicas(bytes_max=600)
    await cluster.start([1])
    storage = cluster.storages[1]
    storage.snapshots_broken = True
    await cluster.make_topics(0, 10)
    await cluster.until(lambda: cluster.all_have(10, [1]))
    assert not storage.files
    storage.snapshots_broken = False
    await cluster.make_topics(10, 10)
    await cluster.until(lambda: cluster.all_have(20, [1]))
    for _ in range(100):
        await asyncio.sleep(0)
    assert storage.files
    await cluster.stop()


async def test_snapshot_is_written_after_the_interval_if_there_are_new_records() -> None:
    cluster = Replicas(bytes_max=2**40)
    cluster.limits = SnapshotConfig(2**40, interval_ms=1_000)
    clock = cluster.clock = SetClock()
    await cluster.start([1])
    counts = []
    for number, now_ms in enumerate([0, 999, 1_000, 1_500, 1_999, 5_000]):
        clock.now_ms = now_ms
        await cluster.make_topics(number, 1)
        await cluster.until(lambda number=number: cluster.all_have(number + 1, [1]))  # type: ignore[misc]
        for _ in range(100):
            await asyncio.sleep(0)
        counts.append(len(cluster.storages[1].snapshots()))
    assert counts == [0, 0, 1, 1, 1, 2]
    await cluster.stop()
