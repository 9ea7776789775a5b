"""What goes wrong in a cluster: a message that names the node and the remedy, and nothing lost that was acknowledged."""

import errno
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
from tests.support.several_nodes import Nodes

HOUR_MS = 3_600_000
VALUES = [b"%d" % number for number in range(20)]


@asynccontextmanager
async def cluster(directory: Path, **settings: object) -> AsyncIterator[Nodes]:
    """Three nodes and a topic `t` of three replicas, led by node 1, that holds VALUES."""
    nodes = Nodes(directory, 3, **settings)  # type: ignore[arg-type]
    try:
        await nodes.start()
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        assert await nodes.produce("t", *VALUES) is ErrorCode.NONE
        yield nodes
    finally:
        await nodes.stop()


async def stop(nodes: Nodes, node_id: int) -> None:
    await nodes.nodes.pop(node_id).stop()


def log_file(nodes: Nodes, node_id: int, topic: str = "t") -> Path:
    return nodes.directory / f"node-{node_id}" / f"{topic}-0" / f"{0:020d}.log"


def fenced_with_its_remedy(logs: Sequence[MutableMapping[str, Any]], node_id: int, data: Path) -> None:
    [told] = [entry for entry in logs if entry["event"] == "broker requests to be fenced"]
    assert (told["log_level"], told["broker"]) == ("error", node_id)
    assert f"the disk of {data} has refused t-0: " in told["reason"]
    assert told["reason"].endswith("free space or replace the disk, then restart this node")


def _isr(image: MetadataImage) -> Sequence[int]:
    partition = image.partition("t", 0)
    return () if partition is None else partition.isr


async def test_a_node_that_has_lost_its_disk_gets_everything_back_from_the_others(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        await stop(nodes, 1)
        shutil.rmtree(tmp_path / "node-1")
        await nodes.until(2, lambda image: (part := image.partition("t", 0)) is not None and part.leader == 2)
        assert await nodes.produce("t", b"meanwhile") is ErrorCode.NONE
        await nodes.start([1])
        await nodes.until_in_sync("t", [1, 2, 3])
        assert log_file(nodes, 1).read_bytes() == log_file(nodes, 2).read_bytes()
        assert await nodes.values("t") == [*VALUES, b"meanwhile"]


async def test_an_empty_disk_never_leads_while_it_is_the_last_that_was_in_sync(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 3)
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
        [told] = [entry for entry in logs if entry.get("partitions") == "alone-0"]
        assert (told["log_level"], told["broker"], told["count"]) == ("warning", 1, 1)
        assert "start broker 1 with its former data directory" in told["remedy"]
        # The remedy: the disk is back.
        await stop(nodes, 1)
        shutil.rmtree(tmp_path / "node-1")
        shutil.move(tmp_path / "kept", tmp_path / "node-1")
        await nodes.start([1])
        await nodes.until(1, lambda image: (part := image.partition("alone", 0)) is not None and part.leader == 1)
        assert await nodes.values("alone") == [b"precious"]
    finally:
        await nodes.stop()


async def test_a_replica_that_was_damaged_while_its_node_was_down_is_made_whole(tmp_path: Path) -> None:
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
        [told] = [entry for entry in logs if entry.get("path") == str(path) and "removed_bytes" in entry]
        assert (told["log_level"], told["offset"], told["removed_bytes"]) == ("warning", 0, len(damaged))
        assert told["reason"]
        assert path.read_bytes() == log_file(nodes, 1).read_bytes()


async def test_a_full_disk_of_the_leader_moves_its_leaderships_and_loses_nothing(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 3)
    full = FaultyDisk()
    try:
        nodes.make(1, disk=full)
        await nodes.start_made({1: nodes.nodes[1]}, [2, 3])
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        assert await nodes.produce("t", *VALUES) is ErrorCode.NONE
        with capture_logs() as logs:
            full.refuse("write", "t-0/00000000000000000000.log")
            assert await nodes.produce("t", b"lost?") is ErrorCode.KAFKA_STORAGE_ERROR
            await nodes.until(2, lambda image: (part := image.partition("t", 0)) is not None and part.leader == 2)
        fenced_with_its_remedy(logs, 1, tmp_path / "node-1")
        assert await nodes.produce("t", b"goes on") is ErrorCode.NONE
        assert await nodes.values("t") == [*VALUES, b"goes on"]
    finally:
        full.heal()
        await nodes.stop()


async def test_a_full_disk_of_a_follower_takes_it_out_and_holds_nobody_up(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 3)
    full = FaultyDisk()
    try:
        nodes.make(3, disk=full)
        await nodes.start_made({3: nodes.nodes[3]}, [1, 2])
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        assert await nodes.produce("t", *VALUES) is ErrorCode.NONE
        with capture_logs() as logs:
            full.refuse("write", "t-0/00000000000000000000.log", errno.ENOSPC)
            assert await nodes.produce("t", b"goes on") is ErrorCode.NONE
            await nodes.until(1, lambda image: image.brokers[3].fenced and set(_isr(image)) == {1, 2})
        fenced_with_its_remedy(logs, 3, tmp_path / "node-3")
        assert any("No space left on device" in str(entry["reason"]) for entry in logs if "reason" in entry), logs
        assert nodes.leader("t") == 1
        # The remedy: room is made, and the node started again.
        await stop(nodes, 3)
        full.heal()
        await nodes.start([3])
        await nodes.until_in_sync("t", [1, 2, 3])
        assert log_file(nodes, 3).read_bytes() == log_file(nodes, 1).read_bytes()
        assert await nodes.values("t") == [*VALUES, b"goes on"]
    finally:
        full.heal()
        await nodes.stop()


async def test_without_a_majority_of_replicas_nothing_is_acknowledged(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
async def test_a_clock_that_is_an_hour_off_changes_nothing_and_is_named(tmp_path: Path, ahead_ms: int) -> None:
    nodes = Nodes(tmp_path, 3)
    with capture_logs() as logs:
        try:
            made = {each: nodes.make(each, clock_ahead_ms=ahead_ms if each == 2 else 0) for each in nodes.ids}
            await nodes.start_made(made, [])
            await nodes.create("t", [2, 1, 3], min_insync_replicas="2")
            assert await nodes.produce("t", *VALUES) is ErrorCode.NONE
            await stop(nodes, 2)
            await nodes.until(1, lambda image: (part := image.partition("t", 0)) is not None and part.leader == 1)
            assert await nodes.produce("t", b"after") is ErrorCode.NONE
            assert await nodes.values("t") == [*VALUES, b"after"]
        finally:
            await nodes.stop()
    told = [entry for entry in logs if entry["event"] == "clocks of two nodes differ"]
    assert {entry["member"] for entry in told} == ({2} if ahead_ms > 0 else {1, 3}), (
        "whoever is behind says who is ahead"
    )
    for entry in told:
        assert HOUR_MS - 60_000 < entry["ahead_ms"] < HOUR_MS + 60_000
        assert f"set this host's clock and that of node {entry['member']} by one time service (NTP)" in entry["remedy"]


async def test_a_second_process_with_the_same_node_id_is_told_who_has_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, **{"broker.session.timeout.ms": 900, "broker.heartbeat.interval.ms": 100}) as nodes:
        twin = Nodes(tmp_path / "twin", 1)
        twin.voters = nodes.voters
        twin.settings["node.id"] = 2
        twin.settings.update(nodes.settings)
        try:
            # Whose id it is: that of a broker, which the controller knows, or of the controller itself, which all follow.
            with pytest.raises(
                CannotStartError, match=r"node\.id 2 .*; every node needs an id of its own|node\.id 2 as its"
            ):
                await twin.start()
        finally:
            await twin.stop()
        assert await nodes.produce("t", b"unharmed") is ErrorCode.NONE


async def test_two_nodes_on_one_port(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        twin = Nodes(tmp_path / "twin", 1)
        twin.ports = [nodes.port(2)]
        try:
            with pytest.raises(CannotStartError, match=rf"cannot listen on 127\.0\.0\.1:{nodes.port(2)} .*in use"):
                await twin.start()
        finally:
            await twin.stop()
