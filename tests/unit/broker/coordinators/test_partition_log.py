import errno
from pathlib import Path

import pytest

from odradek.broker.coordinators.partition_log import PartitionLogPort
from odradek.broker.quota.shortest_first import ShortestFirst
from odradek.protocol.batch import end_txn_marker
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.records.metadata import PartitionChangeRecord
from odradek.runtime.shard import Marker, ShardRecord
from odradek.storage.config import LogConfig
from odradek.storage.producers.entry import Origin
from tests.support.data_rig import EIO, NODE, NOW_MS, Rig

Visited = list[tuple[int, ShardRecord | Marker, int]]


def port(rig: Rig, read_bytes: int = 1_000_000) -> PartitionLogPort:
    return PartitionLogPort(rig.partition(), read_bytes=read_bytes, load_queue=ShortestFirst(1))


async def replayed(log: PartitionLogPort) -> Visited:
    visited: Visited = []
    await log.replay(lambda offset, record, epoch: visited.append((offset, record, epoch)))
    return visited


@pytest.mark.usefixtures("reads_from_file")
@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("read_bytes", [1, 200, 1_000_000])
async def test_replay_returns_the_appended_records(tmp_path: Path, read_bytes: int, cold: bool) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    records = [ShardRecord(b"k%d" % number, None if number == 3 else b"v" * 50) for number in range(7)]
    assert port(rig).append(records[:3], NOW_MS) == 3
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=NODE))
    assert port(rig).append(records[3:], NOW_MS) == 7
    if cold:
        rig.disk.failing["cold"] = 0
    expected = [(offset, record, 0 if offset < 3 else 1) for offset, record in enumerate(records)]
    assert await replayed(port(rig, read_bytes)) == expected


async def test_replay_returns_transactional_records_and_their_marker(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=LogConfig(verification_enabled=False))
    rig.topic("t")
    record = ShardRecord(b"k", b"v", 7, 3)
    port(rig).append([record], NOW_MS)
    marker = end_txn_marker(producer_id=7, producer_epoch=3, coordinator_epoch=2, commit=True, timestamp=NOW_MS)
    rig.partition().append(marker, origin=Origin.COORDINATOR, now_ms=NOW_MS)
    assert await replayed(port(rig)) == [(0, record, 0), (1, Marker(7, 3, 2, True), 0)]


async def test_error_of_the_visitor_ends_the_replay(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    port(rig).append([ShardRecord(b"k", b"v")], NOW_MS)

    def visit(*_: object) -> None:
        raise KeyError("stop")

    with pytest.raises(KeyError):
        await port(rig).replay(visit)


async def test_append_with_the_port_of_a_former_leader_term_is_refused(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    old = port(rig)
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=NODE))
    with pytest.raises(Refusal) as refused:
        old.append([ShardRecord(b"k", b"v")], NOW_MS)
    assert refused.value.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rig.partition().log.log_end_offset == 0


async def test_append_errors_before_and_after_the_write_differ(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=LogConfig(max_message_bytes=200))
    rig.topic("t")
    with pytest.raises(Refusal) as refused:
        port(rig).append([ShardRecord(b"k", b"v" * 500)], NOW_MS)
    assert refused.value.error is ErrorCode.MESSAGE_TOO_LARGE
    rig.disk.failing["write"] = EIO
    with pytest.raises(OSError) as failed:
        port(rig).append([ShardRecord(b"k", b"v")], NOW_MS)
    assert failed.value.errno == errno.EIO
    with pytest.raises(Refusal) as offline:
        port(rig).append([ShardRecord(b"k", b"v")], NOW_MS)
    assert offline.value.error is ErrorCode.KAFKA_STORAGE_ERROR


async def test_subscribers_receive_each_advance_until_they_unsubscribe(tmp_path: Path) -> None:
    rig = Rig(tmp_path, manual_commits=True)
    rig.topic("t")
    advances: list[int] = []
    log = port(rig)
    log.subscribe(advances.append)
    log.append([ShardRecord(b"k", b"v")] * 2, NOW_MS)
    assert (advances, log.high_watermark, log.log_end_offset) == ([], 0, 2)
    rig.commits[0].advance(2)
    log.append([ShardRecord(b"k", b"v")], NOW_MS)
    log.unsubscribe(advances.append)
    rig.commits[0].advance()
    assert (advances, log.high_watermark) == ([2], 3)
