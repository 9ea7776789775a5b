"""What the APIs of agreement answer to requests that do not fit, and how they speak of the state of agreement (kafka-facts 8.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from odradek.broker.quorum import wire
from odradek.cluster.metadata.image import METADATA_TOPIC_ID
from odradek.cluster.raft import messages as core
from odradek.cluster.raft.batches import encode_records
from odradek.protocol import codec
from odradek.protocol.errors import ErrorCode, Malformed
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.messages import begin_quorum_epoch as begin
from odradek.protocol.messages import describe_quorum as describe
from odradek.protocol.messages import end_quorum_epoch as end
from odradek.protocol.messages import fetch, fetch_snapshot, vote
from tests.support.several_nodes import CLUSTER_ID, Nodes

if TYPE_CHECKING:
    from pathlib import Path

OTHER_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"


def a_vote(node: int, epoch: int, **changes: Any) -> vote.VoteRequest:
    cluster_id, voter_id = changes.pop("cluster_id", CLUSTER_ID), changes.pop("voter_id", 1)
    topic, partition = changes.pop("topic", CLUSTER_METADATA), changes.pop("partition", 0)
    data = vote.RequestPartitionData(partition, epoch, node, last_offset_epoch=1, last_offset=1_000)
    for name, value in changes.items():
        setattr(data, name, value)
    return vote.VoteRequest(cluster_id, voter_id, [vote.RequestTopicData(topic, [data])])


def a_begin(node: int, epoch: int, cluster_id: str = CLUSTER_ID, voter_id: int = 1) -> begin.BeginQuorumEpochRequest:
    data = begin.RequestPartitionData(leader_id=node, leader_epoch=epoch)
    return begin.BeginQuorumEpochRequest(cluster_id, voter_id, [begin.RequestTopicData(CLUSTER_METADATA, [data])])


def an_end(node: int, epoch: int, cluster_id: str = CLUSTER_ID) -> end.EndQuorumEpochRequest:
    data = end.RequestPartitionData(leader_id=node, leader_epoch=epoch)
    return end.EndQuorumEpochRequest(cluster_id, [end.RequestTopicData(CLUSTER_METADATA, [data])])


def a_fetch(node: int, epoch: int, offset: int, last_epoch: int, cluster_id: str = CLUSTER_ID) -> fetch.FetchRequest:
    asked = core.FetchRequest(node, 1, epoch, offset, last_epoch, 0)
    return wire.fetch_request(asked, cluster_id, 10)


def a_snapshot_fetch(
    epoch: int, end_offset: int, position: int = 0, cluster_id: str = CLUSTER_ID
) -> fetch_snapshot.FetchSnapshotRequest:
    asked = core.FetchSnapshotRequest(9, 1, epoch, core.EpochEnd(1, end_offset), position, 1_000)
    return wire.snapshot_request(asked, cluster_id)


async def test_requests_that_do_not_fit_are_refused_by_name_and_change_nothing(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 1)
    await nodes.start()
    raft = nodes.nodes[1].quorum.raft.core
    now = raft.epoch
    answers: list[tuple[Any, int, ErrorCode]] = [
        (a_vote(1, now + 1, cluster_id=OTHER_CLUSTER), 2, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (a_vote(1, now + 1, voter_id=7), 2, ErrorCode.INVALID_VOTER_KEY),
        (a_vote(1, now + 1, topic="another"), 2, ErrorCode.INVALID_REQUEST),
        (a_vote(1, now + 1, partition=1), 2, ErrorCode.INVALID_REQUEST),
        (a_begin(1, now + 1, OTHER_CLUSTER), 1, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (a_begin(1, now + 1, voter_id=7), 1, ErrorCode.INVALID_VOTER_KEY),
        (an_end(1, now + 1, OTHER_CLUSTER), 1, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (a_fetch(9, now, 0, 0, OTHER_CLUSTER), 18, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (a_snapshot_fetch(now, 1, cluster_id=OTHER_CLUSTER), 1, ErrorCode.INCONSISTENT_CLUSTER_ID),
    ]
    for request, version, expected in answers:
        answer = await nodes.call(1, request, version)
        assert ErrorCode(answer.error_code) is expected, request
    for request, version, expected in [
        (a_vote(1, now - 1), 2, ErrorCode.FENCED_LEADER_EPOCH),
        (a_vote(9, now + 1), 2, ErrorCode.INVALID_REQUEST),
        (a_vote(1, now + 1, last_offset=-1), 2, ErrorCode.INVALID_REQUEST),
        (a_vote(1, now + 1, last_offset_epoch=-1), 2, ErrorCode.INVALID_REQUEST),
        (a_vote(1, now + 1, last_offset_epoch=now + 1), 2, ErrorCode.INVALID_REQUEST),
        (a_vote(1, now + 1, last_offset_epoch=now + 2, pre_vote=True), 2, ErrorCode.INVALID_REQUEST),
        (a_begin(9, now + 1), 1, ErrorCode.INVALID_REQUEST),
        (a_begin(1, now - 1), 0, ErrorCode.FENCED_LEADER_EPOCH),
        (an_end(9, now + 1), 0, ErrorCode.INVALID_REQUEST),
    ]:
        answer = await nodes.call(1, request, version)
        assert ErrorCode(answer.topics[0].partitions[0].error_code) is expected, request
    assert (raft.epoch, nodes.nodes[1].quorum.controller.is_active) == (now, True)
    await nodes.stop()


async def test_fetches_of_the_metadata(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 1)
    await nodes.start()
    raft = nodes.nodes[1].quorum.raft.core
    now, ends = raft.epoch, raft.log.end_offset
    for request, expected in [
        (a_fetch(9, now - 1, 0, 0), ErrorCode.FENCED_LEADER_EPOCH),
        (a_fetch(9, now + 1, 0, 0), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (a_fetch(9, now, -5, 0), ErrorCode.INVALID_REQUEST),
        (a_fetch(9, now, 0, -5), ErrorCode.INVALID_REQUEST),
        (a_fetch(9, now, 0, 0), ErrorCode.NONE),
    ]:
        [found] = (await nodes.call(1, request, 18)).responses[0].partitions
        assert (ErrorCode(found.error_code), found.current_leader.leader_epoch) == (expected, now), request
    assert found.high_watermark == raft.high_watermark
    assert bytes(found.records).startswith(bytes(8))
    [beyond] = (await nodes.call(1, a_fetch(9, now, ends + 10, now), 18)).responses[0].partitions
    assert (beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset) == (now, raft.log.end_offset)
    by_name = a_fetch(9, now, 0, 0)
    by_name.replica_id, by_name.topics[0].topic, by_name.replica_state = 9, CLUSTER_METADATA, fetch.ReplicaState()
    [named] = (await nodes.call(1, by_name, 12)).responses
    assert (named.topic, named.partitions[0].error_code) == (CLUSTER_METADATA, ErrorCode.NONE)
    as_client = a_fetch(-1, now, 0, 0)
    [hidden] = (await nodes.call(1, as_client, 18)).responses[0].partitions
    assert ErrorCode(hidden.error_code) is ErrorCode.UNKNOWN_TOPIC_ID
    await nodes.stop()


async def test_a_snapshot_is_given_in_parts(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 1, metadata_log_max_record_bytes_between_snapshots=1)
    await nodes.start()
    await nodes.create("t", [1])
    raft = nodes.nodes[1].quorum.raft
    await nodes.create("u", [1])
    await nodes.until(1, lambda _: raft.core.log.latest_snapshot is not None)
    snapshot = raft.core.log.snapshots[-1]
    asked = core.FetchSnapshotRequest(9, 1, raft.core.epoch, snapshot, 0, 100)
    whole, size = b"", 1
    while len(whole) < size:
        request = wire.snapshot_request(asked, CLUSTER_ID)
        request.topics[0].partitions[0].position = len(whole)
        [part] = (await nodes.call(1, request, 1)).topics[0].partitions
        if part.error_code:  # replaced by a newer one meanwhile
            break
        assert (part.position, len(part.unaligned_records)) == (len(whole), min(100, part.size - len(whole)))
        whole, size = whole + bytes(part.unaligned_records), part.size
    for position, end_offset, expected in [
        (-1, snapshot.end_offset, ErrorCode.POSITION_OUT_OF_RANGE),
        (2**40, raft.core.log.snapshots[-1].end_offset, ErrorCode.POSITION_OUT_OF_RANGE),
        (0, 2**40, ErrorCode.SNAPSHOT_NOT_FOUND),
        (0, -1, ErrorCode.SNAPSHOT_NOT_FOUND),
    ]:
        request = a_snapshot_fetch(raft.core.epoch, end_offset, position)
        request.topics[0].partitions[0].snapshot_id.epoch = raft.core.log.snapshots[-1].epoch
        [part] = (await nodes.call(1, request, 1)).topics[0].partitions
        assert ErrorCode(part.error_code) is expected
    await nodes.stop()


async def test_the_quorum_is_described_by_its_leader_wherever_it_is_asked(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 4, voters=3)
    await nodes.start()
    asked = describe.DescribeQuorumRequest(
        [
            describe.RequestTopicData(CLUSTER_METADATA, [describe.RequestPartitionData(0)]),
            describe.RequestTopicData("other", [describe.RequestPartitionData(0)]),
        ]
    )
    for node_id in nodes.ids:
        answer = await nodes.call(node_id, asked, 2)
        assert answer.error_code == ErrorCode.NONE, (node_id, answer)
        found, other = answer.topics[0].partitions[0], answer.topics[1].partitions[0]
        assert (found.error_code, found.leader_id) == (ErrorCode.NONE, nodes.controller)
        assert [state.replica_id for state in found.current_voters] == [1, 2, 3]
        assert [state.replica_id for state in found.observers] == [4]
        assert found.leader_epoch == nodes.nodes[1].quorum.raft.core.epoch
        assert found.high_watermark > 0
        assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [(node.node_id, node.listeners[0].port) for node in answer.nodes] == [
            (n, nodes.port(n)) for n in (1, 2, 3)
        ]
        assert (await nodes.call(node_id, asked, 0)).topics[0].partitions[0].leader_id == nodes.controller
    await nodes.stop()


# ---- the wire itself ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standing", list(core.Standing))
def test_a_vote_says_what_its_voter_may_have_forgotten(standing: core.Standing) -> None:
    reply = core.VoteReply(2, 1, 5, 3, True, False, request_id=7, standing=standing)
    data = codec.encode(wire.vote_response(reply), 2)
    asked = core.VoteRequest(1, 2, 5, 0, 0, pre_vote=False, request_id=7)
    assert wire.vote_reply(asked, codec.decode(vote.VoteResponse, 2, data)) == reply


ASKED = core.FetchRequest(1, 2, 5, 10, 4, 0, 7)


def fetched(*records: bytes) -> fetch.FetchResponse:
    data = fetch.PartitionData(current_leader=fetch.LeaderIdAndEpoch(2, 5), records=b"".join(records))
    return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[data])])


def a_batch(offset: int, epoch: int) -> bytes:
    return encode_records([(None, b"v")], base_offset=offset, epoch=epoch, now_ms=1)


def test_entries_that_go_on_are_taken() -> None:
    reply = wire.fetch_reply(ASKED, fetched(a_batch(10, 4), a_batch(11, 5)))
    assert reply is not None
    assert [(entry.base_offset, entry.epoch) for entry in reply.entries] == [(10, 4), (11, 5)]


@pytest.mark.parametrize(
    "records",
    [
        (a_batch(9, 4),),
        (a_batch(11, 4),),
        (a_batch(10, 3),),
        (a_batch(10, 6),),
        (a_batch(10, 5), a_batch(11, 4)),
        (a_batch(10, 4), a_batch(12, 4)),
        (a_batch(10, 4)[:-1] + b"\xff",),
    ],
)
def test_entries_that_do_not_fit_never_reach_the_core(records: tuple[bytes, ...]) -> None:
    with pytest.raises(Malformed):
        wire.fetch_reply(ASKED, fetched(*records))


def test_another_topic_is_not_the_metadata() -> None:
    request = a_fetch(3, 1, 0, 0)
    assert wire.is_metadata_fetch(request)
    request.topics[0].topic_id = UUID(int=2)
    assert not wire.is_metadata_fetch(request)
