"""Faults in a cluster of nodes: each is logged with its node and remedy, and no acknowledged record is lost."""

import shutil
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.node import CannotStartError
from odradek.cluster.metadata.image import MetadataImage
from odradek.protocol.errors import ErrorCode
from tests.support.faulty_disk import FaultyDisk
from tests.support.node_cluster import NodeCluster

HOUR_MS = 3_600_000
VALUES = [b"%d" % number for number in range(20)]
OFTEN = {"broker.heartbeat.interval.ms": 200}
"""Settings of all nodes: the controller receives the state of a disk and of a start within 200 ms, not 2 s."""


@asynccontextmanager
async def cluster(directory: Path, **settings: object) -> AsyncIterator[NodeCluster]:
    """Start three nodes with a topic `t` that holds VALUES: three replicas, led by node 1."""
    nodes = NodeCluster(directory, 3, **{**OFTEN, **settings})  # type: ignore[arg-type]
    try:
        await nodes.start()
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        assert await nodes.produce("t", *VALUES) is ErrorCode.NONE
        yield nodes
    finally:
        await nodes.stop()


async def stop(nodes: NodeCluster, node_id: int) -> None:
    await nodes.nodes.pop(node_id).stop()


def log_file(nodes: NodeCluster, node_id: int, topic: str = "t") -> Path:
    return nodes.directory / f"node-{node_id}" / f"{topic}-0" / f"{0:020d}.log"


def assert_fenced_with_remedy(logs: Sequence[MutableMapping[str, Any]], node_id: int, data: Path) -> None:
    [log_entry] = [entry for entry in logs if entry["event"] == "fencing requested"]
    assert (log_entry["log_level"], log_entry["broker"]) == ("error", node_id)
    assert f"the disk of {data} has refused t-0: " in log_entry["reason"]
    assert log_entry["reason"].endswith("free space or replace the disk, then restart this node")


def _isr(image: MetadataImage) -> Sequence[int]:
    partition = image.partition("t", 0)
    return () if partition is None else partition.isr


async def test_node_with_a_new_disk_replicates_all_records_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        await stop(nodes, 1)
        shutil.rmtree(tmp_path / "node-1")
        await nodes.until(2, lambda image: (part := image.partition("t", 0)) is not None and part.leader == 2)
        assert await nodes.produce("t", b"meanwhile") is ErrorCode.NONE
        await nodes.start([1])
        await nodes.until_in_sync("t", [1, 2, 3])
        assert log_file(nodes, 1).read_bytes() == log_file(nodes, 2).read_bytes()
        assert await nodes.values("t") == [*VALUES, b"meanwhile"]


async def test_last_in_sync_replica_with_an_empty_disk_is_not_elected(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 3, **OFTEN)
    try:
        await nodes.start()
        await nodes.create("alone", [1])
        assert await nodes.produce("alone", b"precious") is ErrorCode.NONE
        await stop(nodes, 1)
        shutil.move(tmp_path / "node-1", tmp_path / "kept")
        with capture_logs() as logs:
            await nodes.start([1])
            await nodes.until(1, lambda image: not image.brokers[1].fenced)
        assert nodes.leader("alone") == -1
        [log_entry] = [entry for entry in logs if entry.get("partitions") == "alone-0"]
        assert (log_entry["log_level"], log_entry["broker"], log_entry["count"]) == ("warning", 1, 1)
        assert "start broker 1 with its former data directory" in log_entry["remedy"]
        # Remedy: start node 1 with its former data directory.
        await stop(nodes, 1)
        shutil.rmtree(tmp_path / "node-1")
        shutil.move(tmp_path / "kept", tmp_path / "node-1")
        await nodes.start([1])
        await nodes.until(1, lambda image: (part := image.partition("alone", 0)) is not None and part.leader == 1)
        assert await nodes.values("alone") == [b"precious"]
    finally:
        await nodes.stop()


async def test_damaged_log_is_truncated_at_start_and_replicated_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        await stop(nodes, 3)
        (tmp_path / "node-3" / ".kafka_cleanshutdown").unlink()
        path = log_file(nodes, 3)
        damaged = bytearray(path.read_bytes())
        damaged[70] ^= 0xFF
        path.write_bytes(damaged)
        with capture_logs() as logs:
            await nodes.start([3])
            await nodes.until_in_sync("t", [1, 2, 3])
        [log_entry] = [entry for entry in logs if entry.get("path") == str(path) and "removed_bytes" in entry]
        assert (log_entry["log_level"], log_entry["offset"], log_entry["removed_bytes"]) == ("warning", 0, len(damaged))
        assert log_entry["reason"]
        assert path.read_bytes() == log_file(nodes, 1).read_bytes()


async def test_write_error_on_the_leader_moves_leadership_and_loses_no_record(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 3, **OFTEN)
    disk = FaultyDisk()
    try:
        nodes.make(1, disk=disk)
        await nodes.start_made({1: nodes.nodes[1]}, [2, 3])
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        assert await nodes.produce("t", *VALUES) is ErrorCode.NONE
        with capture_logs() as logs:
            disk.refuse("write", "t-0/00000000000000000000.log")
            assert await nodes.produce("t", b"lost?") is ErrorCode.KAFKA_STORAGE_ERROR
            await nodes.until(2, lambda image: (part := image.partition("t", 0)) is not None and part.leader == 2)
        assert_fenced_with_remedy(logs, 1, tmp_path / "node-1")
        assert await nodes.produce("t", b"goes on") is ErrorCode.NONE
        assert await nodes.values("t") == [*VALUES, b"goes on"]
    finally:
        disk.heal()
        await nodes.stop()


@pytest.mark.parametrize("node_id", [1, 3], ids=["leader", "follower"])
async def test_broker_with_a_full_disk_is_fenced_until_it_has_space(tmp_path: Path, node_id: int) -> None:
    nodes = NodeCluster(tmp_path, 3, **OFTEN)
    disk = FaultyDisk()
    try:
        nodes.make(node_id, disk=disk)
        await nodes.start_made({node_id: nodes.nodes[node_id]}, [other for other in nodes.ids if other != node_id])
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        assert await nodes.produce("t", *VALUES) is ErrorCode.NONE
        others = set(nodes.ids) - {node_id}
        with capture_logs() as logs:
            disk.full = True
            await nodes.until(2, lambda image: image.brokers[node_id].fenced and set(_isr(image)) == others)
            assert await nodes.produce("t", b"goes on") is ErrorCode.NONE
            disk.full = False
            await nodes.until_in_sync("t", [1, 2, 3])
        assert [entry["event"] for entry in logs if str(entry["event"]).startswith("disk ")] == [
            "disk full, appends refused",
            "disk has free space, appends accepted",
        ]
        assert await nodes.values("t") == [*VALUES, b"goes on"]
    finally:
        await nodes.stop()


async def test_last_broker_with_a_full_disk_refuses_records_and_serves_deletions(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 1)
    disk = FaultyDisk()
    try:
        nodes.make(1, disk=disk)
        await nodes.start_made({1: nodes.nodes[1]}, [])
        await nodes.create("t", [1])
        assert await nodes.produce("t", *VALUES) is ErrorCode.NONE
        disk.full = True
        assert await nodes.produce("t", b"refused") is ErrorCode.NOT_ENOUGH_REPLICAS
        await nodes.create("u", [1])
        disk.full = False
        assert await nodes.produce("t", b"goes on") is ErrorCode.NONE
        assert await nodes.values("t") == [*VALUES, b"goes on"]
    finally:
        await nodes.stop()


async def test_produce_below_min_insync_replicas_is_not_acknowledged(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        await stop(nodes, 3)
        await stop(nodes, 2)
        assert await nodes.produce("t", b"refused", timeout_ms=500) in {
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.REQUEST_TIMED_OUT,
        }
        await nodes.start([2])
        await nodes.until_in_sync("t", [1, 2])
        assert await nodes.produce("t", b"again") is ErrorCode.NONE
        assert [value for value in await nodes.values("t") if value != b"refused"] == [*VALUES, b"again"]


@pytest.mark.parametrize("clock_ahead_ms", [HOUR_MS, -HOUR_MS])
async def test_clock_one_hour_off_changes_no_result_and_is_logged(tmp_path: Path, clock_ahead_ms: int) -> None:
    nodes = NodeCluster(tmp_path, 3, **OFTEN)
    with capture_logs() as logs:
        try:
            nodes_by_id = {
                node_id: nodes.make(node_id, clock_ahead_ms=clock_ahead_ms if node_id == 2 else 0)
                for node_id in nodes.ids
            }
            await nodes.start_made(nodes_by_id, [])
            await nodes.create("t", [2, 1, 3], min_insync_replicas="2")
            assert await nodes.produce("t", *VALUES) is ErrorCode.NONE
            await stop(nodes, 2)
            await nodes.until(1, lambda image: (part := image.partition("t", 0)) is not None and part.leader == 1)
            assert await nodes.produce("t", b"after") is ErrorCode.NONE
            assert await nodes.values("t") == [*VALUES, b"after"]
        finally:
            await nodes.stop()
    log_entries = [log_entry for log_entry in logs if log_entry["event"] == "clock difference detected"]
    assert {log_entry["member"] for log_entry in log_entries} == ({2} if clock_ahead_ms > 0 else {1, 3}), (
        "a node logs each member whose clock is ahead of its own"
    )
    for log_entry in log_entries:
        assert HOUR_MS - 60_000 < log_entry["ahead_ms"] < HOUR_MS + 60_000
        assert (
            f"set this host's clock and that of node {log_entry['member']} by one time service (NTP)"
            in log_entry["remedy"]
        )


async def test_second_process_with_the_same_node_id_cannot_start(tmp_path: Path) -> None:
    async with cluster(tmp_path, **{"broker.session.timeout.ms": 900, "broker.heartbeat.interval.ms": 100}) as nodes:
        duplicate = NodeCluster(tmp_path / "duplicate", 1)
        duplicate.voters = nodes.voters
        duplicate.settings["node.id"] = 2
        duplicate.settings.update(nodes.settings)
        try:
            # If node 2 is a broker, its controller refuses the registration. If it is the controller, the duplicate
            # notices a leader with its own node id.
            with pytest.raises(
                CannotStartError, match=r"node\.id 2 .*; every node needs an id of its own|node\.id 2 as its"
            ):
                await duplicate.start()
        finally:
            await duplicate.stop()
        assert await nodes.produce("t", b"unharmed") is ErrorCode.NONE


async def test_second_node_on_the_same_port_cannot_start(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        duplicate = NodeCluster(tmp_path / "duplicate", 1)
        duplicate.ports = [nodes.port(2)]
        try:
            with pytest.raises(CannotStartError, match=rf"cannot listen on 127\.0\.0\.1:{nodes.port(2)} .*in use"):
                await duplicate.start()
        finally:
            await duplicate.stop()
