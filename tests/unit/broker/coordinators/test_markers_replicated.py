"""Transaction markers while the partitions that receive them change their leader."""

from asyncio import ensure_future
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.coordinator.txn.ports import Marker, MarkerResults, TopicPartition
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.config import LogConfig
from odradek.storage.log.log import PartitionLog
from odradek.storage.producers.entry import Origin
from odradek.storage.recovery.loaded_log import OpenOptions
from tests.support.cleaning import clean, fetched
from tests.support.data_rig import NOW_MS, batch
from tests.support.replication_rig import Broker, Brokers

E = ErrorCode
T0 = TopicPartition("t", 0)
PID = 7


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    cluster = Brokers(tmp_path, config=LogConfig(min_insync_replicas=2))
    cluster.topic()
    yield cluster
    await cluster.close()


def marker(coordinator_epoch: int, epoch: int = 1, version: int = 2, *, commit: bool = True) -> Marker:
    return Marker(PID, epoch, coordinator_epoch, commit, (T0,), version)


def write(broker: Broker, epoch: int, sequence: int = 0) -> None:
    partition = broker.partition()
    guard = partition.log.producers.start_verification(PID, epoch, sequence, supports_epoch_bump=True)
    data = batch(producer_id=PID, epoch=epoch, sequence=sequence, transactional=True)
    partition.append(data, origin=Origin.CLIENT, now_ms=NOW_MS, guard=guard)


async def write_marker(brokers: Brokers, node_id: int, txn_marker: Marker) -> MarkerResults:
    future = ensure_future(brokers[node_id].services.markers.write([txn_marker]))
    await brokers.until(future.done)
    results: MarkerResults = future.result()
    return results


async def test_marker_write_completes_when_the_marker_is_committed(brokers: Brokers) -> None:
    write(brokers[1], 0)
    brokers.isolated[2] = brokers.isolated[3] = None
    future = brokers[1].services.markers.write([marker(3)])
    assert not future.done()
    del brokers.isolated[2], brokers.isolated[3]
    await brokers.until(future.done)
    assert future.result() == [{T0: E.NONE}]
    assert brokers[1].partition().log.last_stable_offset == 2


async def test_deposed_coordinator_is_fenced_by_every_later_leader_of_the_partition(brokers: Brokers) -> None:
    """Replicas learn the coordinator epoch from the marker.

    1. The coordinator of epoch 3 writes its marker.
    2. The leader of the partition fails.
    3. A marker of coordinator epoch 2 reaches the new leader, which refuses it.
    """
    write(brokers[1], 0)
    assert await write_marker(brokers, 1, marker(3)) == [{T0: E.NONE}]
    brokers.change(leader=2)
    assert await write_marker(brokers, 2, marker(2)) == [{T0: E.TRANSACTION_COORDINATOR_FENCED}]
    brokers.change(leader=3)
    assert await write_marker(brokers, 3, marker(2)) == [{T0: E.TRANSACTION_COORDINATOR_FENCED}]
    assert await write_marker(brokers, 3, marker(3)) == [{T0: E.NONE}]  # a repetition: the first response was lost


async def test_coordinator_epoch_survives_a_restart_of_the_replica(brokers: Brokers) -> None:
    write(brokers[1], 0)
    assert await write_marker(brokers, 1, marker(3)) == [{T0: E.NONE}]
    await brokers.until(lambda: brokers[2].committed() == 2)
    log = brokers[2].partition().log
    log.close(clean=True)
    reopened = PartitionLog.open(
        brokers[2].disk,
        log.directory,
        log.config,
        OpenOptions(NOW_MS, recovery_point=log.log_end_offset, clean=True),
        topic="t",
        partition=0,
        topic_id=log.topic_id,
    )
    (producer,) = reopened.producers.active()
    assert (producer.producer_id, producer.producer_epoch, producer.coordinator_epoch) == (PID, 1, 3)


async def test_marker_lost_with_its_leader_is_written_again_and_ends_the_transaction(
    brokers: Brokers,
) -> None:
    write(brokers[1], 0)
    await brokers.until(lambda: brokers[1].committed() == 1)
    brokers.isolated[1] = None
    lost = brokers[1].services.markers.write([marker(3)])
    brokers.fence(1, leader=2, isr=[2, 3])
    await brokers.until(lost.done)
    assert lost.result() == [{T0: E.NOT_LEADER_OR_FOLLOWER}]
    assert await write_marker(brokers, 2, marker(3)) == [{T0: E.NONE}]
    assert brokers[2].partition().log.last_stable_offset == 2
    with pytest.raises(Refusal) as refused:
        write(brokers[2], 0, sequence=1)  # the producer continues with the epoch that has ended
    assert refused.value.error is E.INVALID_PRODUCER_EPOCH
    write(brokers[2], 1)  # the next epoch is accepted


async def test_replica_that_missed_a_compacted_marker_drops_its_records_of_the_transaction(
    brokers: Brokers,
) -> None:
    """The outcome of the transaction is no longer known: only the producer epoch of the marker remains."""
    leader, follower = (brokers[number].partition().log for number in (1, 3))
    write(brokers[1], 0)
    await brokers.until(lambda: brokers[3].committed() == 1)
    brokers.isolated[3] = None
    brokers.fence(3, isr=[1, 2])
    assert await write_marker(brokers, 1, marker(3, commit=False)) == [{T0: E.NONE}]
    brokers[1].append(b"later")
    await brokers.until(lambda: brokers[1].committed() == 3)
    leader.roll(NOW_MS)
    leader.update_config(replace(leader.config, delete_retention_ms=0))
    for passes in range(3):
        leader.cleaned_to = None
        await clean(leader, now_ms=NOW_MS + passes)
    await brokers.reconnect(3)
    assert brokers[3].content() == brokers[1].content()
    assert follower.last_stable_offset == 3
    assert fetched(follower, committed=True) == []


async def test_transaction_without_trace_on_the_leader_ends_with_the_next_one_of_its_producer(brokers: Brokers) -> None:
    """Known limit, as in Apache Kafka (decision 0102): records, marker and producer are gone from the leader's log."""
    leader, follower = (brokers[number].partition().log for number in (1, 3))
    leader.update_config(replace(leader.config, delete_retention_ms=0))
    follower.update_config(replace(follower.config, cleanup_policy=("compact",)))
    write(brokers[1], 0)
    await brokers.until(lambda: brokers[3].committed() == 1)
    brokers.isolated[3] = None
    brokers.fence(3, isr=[1, 2])
    assert await write_marker(brokers, 1, marker(3, commit=False)) == [{T0: E.NONE}]
    brokers[1].append(b"later")
    await brokers.until(lambda: brokers[1].committed() == 3)
    leader.roll(NOW_MS)
    leader.producers.entries.clear()
    for passes in range(3):
        leader.cleaned_to = None
        await clean(leader, now_ms=NOW_MS + passes)
    assert [header.producer_id for header, _ in iter_batches(brokers[1].content())] == [-1]
    await brokers.reconnect(3)
    assert (leader.last_stable_offset, follower.last_stable_offset) == (3, 0)
    write(brokers[1], 2)
    assert await write_marker(brokers, 1, marker(3, epoch=3)) == [{T0: E.NONE}]
    await brokers.until(lambda: brokers[3].committed() == 5)
    assert [record.offset for record in fetched(leader, committed=True)] == [3]
    assert [record.offset for record in fetched(follower, committed=True)] == [0, 3]
    assert follower.last_stable_offset == 5
