"""Quorum APIs: refusals of invalid requests, metadata fetches, snapshots and DescribeQuorum.

Sources: KIP-595, KIP-630 and KIP-996.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.broker.quorum import wire
from odradek.cluster.raft import messages as core
from odradek.protocol.errors import ErrorCode
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.messages import begin_quorum_epoch as begin
from odradek.protocol.messages import describe_quorum as describe
from odradek.protocol.messages import end_quorum_epoch as end
from odradek.protocol.messages import fetch, fetch_snapshot, vote
from tests.support.node_cluster import CLUSTER_ID, NodeCluster

if TYPE_CHECKING:
    from pathlib import Path

OTHER_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"


def vote_request(node: int, epoch: int, **changes: Any) -> vote.VoteRequest:
    cluster_id, voter_id = changes.pop("cluster_id", CLUSTER_ID), changes.pop("voter_id", 1)
    topic, partition = changes.pop("topic", CLUSTER_METADATA), changes.pop("partition", 0)
    data = vote.RequestPartitionData(partition, epoch, node, last_offset_epoch=1, last_offset=1_000)
    for name, value in changes.items():
        setattr(data, name, value)
    return vote.VoteRequest(cluster_id, voter_id, [vote.RequestTopicData(topic, [data])])


def begin_request(
    node: int, epoch: int, cluster_id: str = CLUSTER_ID, voter_id: int = 1
) -> begin.BeginQuorumEpochRequest:
    data = begin.RequestPartitionData(leader_id=node, leader_epoch=epoch)
    return begin.BeginQuorumEpochRequest(cluster_id, voter_id, [begin.RequestTopicData(CLUSTER_METADATA, [data])])


def end_request(node: int, epoch: int, cluster_id: str = CLUSTER_ID) -> end.EndQuorumEpochRequest:
    data = end.RequestPartitionData(leader_id=node, leader_epoch=epoch)
    return end.EndQuorumEpochRequest(cluster_id, [end.RequestTopicData(CLUSTER_METADATA, [data])])


def fetch_request(
    node: int, epoch: int, offset: int, last_epoch: int, cluster_id: str = CLUSTER_ID
) -> fetch.FetchRequest:
    request = core.FetchRequest(node, 1, epoch, offset, last_epoch, 0)
    return wire.fetch_request(request, cluster_id, 10)


def snapshot_request(
    epoch: int, end_offset: int, position: int = 0, cluster_id: str = CLUSTER_ID
) -> fetch_snapshot.FetchSnapshotRequest:
    request = core.FetchSnapshotRequest(9, 1, epoch, core.EpochEnd(1, end_offset), position, 1_000)
    return wire.snapshot_request(request, cluster_id)


async def test_invalid_quorum_requests_are_refused_and_change_no_state(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 1)
    await nodes.start()
    raft = nodes.nodes[1].quorum.raft.core
    epoch = raft.epoch
    refusals: list[tuple[Any, int, ErrorCode]] = [
        (vote_request(1, epoch + 1, cluster_id=OTHER_CLUSTER), 2, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (vote_request(1, epoch + 1, voter_id=7), 2, ErrorCode.INVALID_VOTER_KEY),
        (vote_request(1, epoch + 1, topic="another"), 2, ErrorCode.INVALID_REQUEST),
        (vote_request(1, epoch + 1, partition=1), 2, ErrorCode.INVALID_REQUEST),
        (begin_request(1, epoch + 1, OTHER_CLUSTER), 1, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (begin_request(1, epoch + 1, voter_id=7), 1, ErrorCode.INVALID_VOTER_KEY),
        (end_request(1, epoch + 1, OTHER_CLUSTER), 1, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (fetch_request(9, epoch, 0, 0, OTHER_CLUSTER), 18, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (snapshot_request(epoch, 1, cluster_id=OTHER_CLUSTER), 1, ErrorCode.INCONSISTENT_CLUSTER_ID),
    ]
    for request, version, expected in refusals:
        response = await nodes.call(1, request, version)
        assert ErrorCode(response.error_code) is expected, request
    for request, version, expected in [
        (vote_request(1, epoch - 1), 2, ErrorCode.FENCED_LEADER_EPOCH),
        (vote_request(9, epoch + 1), 2, ErrorCode.INVALID_REQUEST),
        (vote_request(1, epoch + 1, last_offset=-1), 2, ErrorCode.INVALID_REQUEST),
        (vote_request(1, epoch + 1, last_offset_epoch=-1), 2, ErrorCode.INVALID_REQUEST),
        (vote_request(1, epoch + 1, last_offset_epoch=epoch + 1), 2, ErrorCode.INVALID_REQUEST),
        (vote_request(1, epoch + 1, last_offset_epoch=epoch + 2, pre_vote=True), 2, ErrorCode.INVALID_REQUEST),
        (begin_request(9, epoch + 1), 1, ErrorCode.INVALID_REQUEST),
        (begin_request(1, epoch - 1), 0, ErrorCode.FENCED_LEADER_EPOCH),
        (end_request(9, epoch + 1), 0, ErrorCode.INVALID_REQUEST),
    ]:
        response = await nodes.call(1, request, version)
        assert ErrorCode(response.topics[0].partitions[0].error_code) is expected, request
    assert (raft.epoch, nodes.nodes[1].quorum.controller.is_active) == (epoch, True)
    await nodes.stop()


async def test_fetch_of_the_metadata_log_checks_epoch_offset_and_replica(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 1)
    await nodes.start()
    raft = nodes.nodes[1].quorum.raft.core
    epoch, end_offset = raft.epoch, raft.log.end_offset
    for request, expected in [
        (fetch_request(9, epoch - 1, 0, 0), ErrorCode.FENCED_LEADER_EPOCH),
        (fetch_request(9, epoch + 1, 0, 0), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (fetch_request(9, epoch, -5, 0), ErrorCode.INVALID_REQUEST),
        (fetch_request(9, epoch, 0, -5), ErrorCode.INVALID_REQUEST),
        (fetch_request(9, epoch, 0, 0), ErrorCode.NONE),
    ]:
        [partition] = (await nodes.call(1, request, 18)).responses[0].partitions
        assert (ErrorCode(partition.error_code), partition.current_leader.leader_epoch) == (expected, epoch), request
    assert partition.high_watermark == raft.high_watermark
    assert bytes(partition.records).startswith(bytes(8))
    [diverging] = (await nodes.call(1, fetch_request(9, epoch, end_offset + 10, epoch), 18)).responses[0].partitions
    assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (epoch, raft.log.end_offset)
    by_name = fetch_request(9, epoch, 0, 0)
    by_name.replica_id, by_name.topics[0].topic, by_name.replica_state = 9, CLUSTER_METADATA, fetch.ReplicaState()
    [named_topic] = (await nodes.call(1, by_name, 12)).responses
    assert (named_topic.topic, named_topic.partitions[0].error_code) == (CLUSTER_METADATA, ErrorCode.NONE)
    as_client = fetch_request(-1, epoch, 0, 0)
    [client_partition] = (await nodes.call(1, as_client, 18)).responses[0].partitions
    assert ErrorCode(client_partition.error_code) is ErrorCode.UNKNOWN_TOPIC_ID
    await nodes.stop()


async def test_fetch_snapshot_returns_the_snapshot_in_parts(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 1, metadata_log_max_record_bytes_between_snapshots=1)
    await nodes.start()
    await nodes.create("t", [1])
    raft = nodes.nodes[1].quorum.raft
    await nodes.create("u", [1])
    await nodes.until(1, lambda _: raft.core.log.latest_snapshot is not None)
    snapshot = raft.core.log.snapshots[-1]
    fetch_snapshot_request = core.FetchSnapshotRequest(9, 1, raft.core.epoch, snapshot, 0, 100)
    snapshot_bytes, size = b"", 1
    while len(snapshot_bytes) < size:
        request = wire.snapshot_request(fetch_snapshot_request, CLUSTER_ID)
        request.topics[0].partitions[0].position = len(snapshot_bytes)
        [part] = (await nodes.call(1, request, 1)).topics[0].partitions
        if part.error_code:  # a newer snapshot has replaced this one
            break
        assert (part.position, len(part.unaligned_records)) == (
            len(snapshot_bytes),
            min(100, part.size - len(snapshot_bytes)),
        )
        snapshot_bytes, size = snapshot_bytes + bytes(part.unaligned_records), part.size
    for position, end_offset, expected in [
        (-1, snapshot.end_offset, ErrorCode.POSITION_OUT_OF_RANGE),
        (2**40, raft.core.log.snapshots[-1].end_offset, ErrorCode.POSITION_OUT_OF_RANGE),
        (0, 2**40, ErrorCode.SNAPSHOT_NOT_FOUND),
        (0, -1, ErrorCode.SNAPSHOT_NOT_FOUND),
    ]:
        request = snapshot_request(raft.core.epoch, end_offset, position)
        request.topics[0].partitions[0].snapshot_id.epoch = raft.core.log.snapshots[-1].epoch
        [part] = (await nodes.call(1, request, 1)).topics[0].partitions
        assert ErrorCode(part.error_code) is expected
    await nodes.stop()


async def test_describe_quorum_returns_the_leaders_state_from_every_node(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 4, voters=3)
    await nodes.start()
    request = describe.DescribeQuorumRequest(
        [
            describe.RequestTopicData(CLUSTER_METADATA, [describe.RequestPartitionData(0)]),
            describe.RequestTopicData("other", [describe.RequestPartitionData(0)]),
        ]
    )
    for node_id in nodes.ids:
        response = await nodes.call(node_id, request, 2)
        assert response.error_code == ErrorCode.NONE, (node_id, response)
        partition, other_partition = response.topics[0].partitions[0], response.topics[1].partitions[0]
        assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, nodes.controller)
        assert [state.replica_id for state in partition.current_voters] == [1, 2, 3]
        assert [state.replica_id for state in partition.observers] == [4]
        assert partition.leader_epoch == nodes.nodes[1].quorum.raft.core.epoch
        assert partition.high_watermark > 0
        assert other_partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [(node.node_id, node.listeners[0].port) for node in response.nodes] == [
            (n, nodes.port(n)) for n in (1, 2, 3)
        ]
        assert (await nodes.call(node_id, request, 0)).topics[0].partitions[0].leader_id == nodes.controller
    await nodes.stop()


# ---- wire format ----------------------------------------------------------------------------------------------------
