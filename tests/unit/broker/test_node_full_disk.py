"""A file system that the logs of a node fill, and that retention frees."""

import asyncio
from contextlib import suppress
from pathlib import Path

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.storage.disk.free_space import FreeSpace
from odradek.storage.disk.os_disk import OsDisk
from tests.support.node_cluster import UNTIL_S, NodeCluster

MIB = 1024 * 1024
CAPACITY_BYTES = 8 * MIB
TOPIC_RESOURCE, SET = 2, 0
STAT_BLOCK_BYTES = 512
VALUE = b"x" * (MIB // 2)


async def test_retention_frees_a_full_disk_and_the_node_goes_on(tmp_path: Path) -> None:
    """The configuration is changed while the disk is full: metadata and checkpoints use the reserve."""

    def used_bytes() -> int:
        used = 0
        for path in tmp_path.rglob("*"):
            with suppress(FileNotFoundError):  # removed or renamed by a thread of the disk
                used += path.lstat().st_blocks * STAT_BLOCK_BYTES
        return used

    disk = OsDisk(reserves_space=True)
    disk.space = FreeSpace(lambda _path: (CAPACITY_BYTES - used_bytes(), CAPACITY_BYTES), reserves=True)
    nodes = NodeCluster(
        tmp_path,
        1,
        log_initial_task_delay_ms=0,
        log_retention_check_interval_ms=100,
        log_segment_delete_delay_ms=0,
    )
    try:
        await nodes.start_made({1: nodes.make(1, disk=disk)}, [])
        await nodes.create("t", [1], segment_bytes=str(MIB))
        written = 0
        while (error := await nodes.produce("t", VALUE)) is ErrorCode.NONE:
            written += 1
            assert written * len(VALUE) < CAPACITY_BYTES
        assert error is ErrorCode.NOT_ENOUGH_REPLICAS
        assert used_bytes() < CAPACITY_BYTES
        retention = AlterConfigsResource(TOPIC_RESOURCE, "t", [AlterableConfig("retention.bytes", SET, str(MIB))])
        altered = await nodes.call(1, IncrementalAlterConfigsRequest([retention]), 1)
        assert altered.responses[0].error_code == ErrorCode.NONE
        async with asyncio.timeout(UNTIL_S):
            while await nodes.produce("t", b"goes on") is not ErrorCode.NONE:
                await asyncio.sleep(0.05)
        partition = nodes.nodes[1].broker.context.partitions.get("t", 0)
        assert partition is not None
        assert partition.log.log_start_offset > 0
        assert partition.log.log_end_offset == written + 1
    finally:
        await nodes.stop()
