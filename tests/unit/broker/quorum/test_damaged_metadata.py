"""Damage in a log of a single node: the start fails with its place, and no committed record is truncated."""

import shutil
from pathlib import Path

import pytest

from odradek.broker.coordinators.partition_log import PartitionLogPort
from odradek.broker.node import CannotStartError
from odradek.broker.quota.shortest_first import ShortestFirst
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import Malformed
from odradek.runtime.shard import ShardRecord
from tests.support.data_rig import NOW_MS, Rig
from tests.support.running_node import make_node, running

LOG = "__cluster_metadata-0/00000000000000000000.log"


def damage(path: Path, batch_number: int) -> int:
    """Flip a bit in a record of a batch; return the base offset. A negative number counts from the end."""
    content = bytearray(path.read_bytes())
    batches = [(header, len(batch)) for header, batch in iter_batches(bytes(content))]
    ends = [sum(size for _, size in batches[: number + 1]) for number in range(len(batches))]
    content[ends[batch_number] - 2] ^= 1
    path.write_bytes(content)
    return batches[batch_number][0].base_offset


async def start_error(path: Path) -> str:
    node, _ = make_node(path)
    try:
        with pytest.raises(CannotStartError) as caught:
            await node.start()
    finally:
        await node.stop()
    return str(caught.value)


async def test_start_fails_if_the_metadata_log_is_damaged_after_a_clean_shutdown(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.metadata("t")
    offset = damage(tmp_path / LOG, 1)
    reason = await start_error(tmp_path)
    assert "__cluster_metadata-0" in reason
    assert f"offset {offset}" in reason


async def test_start_fails_if_committed_metadata_is_damaged_after_a_crash(tmp_path: Path) -> None:
    crashed = tmp_path / "crashed"
    async with running(tmp_path / "running") as node:
        await node.metadata("t")
        await node.node.logs.checkpoint_high_watermarks()
        committed = node.node.quorum.raft.high_watermark
        shutil.copytree(tmp_path / "running", crashed)
    offset = damage(crashed / LOG, 1)
    reason = await start_error(crashed)
    assert "__cluster_metadata-0" in reason
    assert f"offset {offset}" in reason
    assert f"{committed} " in reason


async def test_start_fails_if_metadata_above_the_checkpoints_is_damaged_after_a_process_failure(tmp_path: Path) -> None:
    crashed = tmp_path / "crashed"
    async with running(tmp_path / "running") as node:
        await node.metadata("t")
        shutil.copytree(tmp_path / "running", crashed)
    damage(crashed / LOG, 1)
    before = (crashed / LOG).read_bytes()
    reason = await start_error(crashed)
    assert "__cluster_metadata-0" in reason
    assert "metadata log damaged" in reason
    assert (crashed / LOG).read_bytes() == before


@pytest.mark.usefixtures("reads_from_file")
async def test_replay_of_a_damaged_log_raises_malformed_with_its_offset(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    port = PartitionLogPort(rig.partition(), read_bytes=1_000_000, load_queue=ShortestFirst(1))
    for number in range(3):
        port.append([ShardRecord(b"k%d" % number, b"v")], NOW_MS)
    path = next(tmp_path.rglob("t-0/00000000000000000000.log"))
    damage(path, 1)
    visited: list[int] = []
    with pytest.raises(Malformed, match=r"t-0.*offset 1"):
        await port.replay(lambda offset, *_: visited.append(offset))
    assert visited == [0]
