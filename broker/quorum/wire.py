"""Core messages of agreement as Kafka's Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot, and back.

KIP-595, KIP-630, KIP-996. One thing is added: a voter that may have forgotten something says so beside its vote, in a tagged
field that Kafka does not know and passes over.

One function for each message and direction. What comes from outside is checked here for its shape; whether it makes sense is
for the core to judge. Raises Refusal(INVALID_REQUEST, INCONSISTENT_CLUSTER_ID).
"""

from collections.abc import Sequence
from typing import Final, Protocol

from odradek.cluster.metadata.image import METADATA_TOPIC_ID
from odradek.cluster.raft import messages as core
from odradek.cluster.raft.batches import decode_entries
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.messages import begin_quorum_epoch as begin
from odradek.protocol.messages import end_quorum_epoch as end
from odradek.protocol.messages import fetch, fetch_snapshot, vote
from odradek.protocol.schema import Buffer

VOTE_VERSION: Final = 2
BEGIN_VERSION: Final = 1
END_VERSION: Final = 1
FETCH_VERSION: Final = 18
FETCH_SNAPSHOT_VERSION: Final = 1
STANDING_TAG: Final = 1_000
FETCH_VERSION_MIN: Final = 12
"""Diverging epochs and snapshots came with it."""
FETCH_BYTES_MAX: Final = 8 * 1024 * 1024


class _Topic(Protocol):
    topic_name: str

    @property
    def partitions(self) -> "Sequence[_Partition]": ...


class _Partition(Protocol):
    partition_index: int


def check_cluster(asked: str | None, cluster_id: str) -> None:
    """Refuse what comes from another cluster; None says nothing about it."""
    if asked is not None and asked != cluster_id:
        raise Refusal(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {cluster_id}, and the request is for cluster {asked}"
        )


def _only_metadata(topics: Sequence[_Topic]) -> None:
    if len(topics) != 1 or topics[0].topic_name != CLUSTER_METADATA or len(topics[0].partitions) != 1:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    if topics[0].partitions[0].partition_index != 0:
        raise Refusal(ErrorCode.INVALID_REQUEST)


# ---- Vote -----------------------------------------------------------------------------------------------------------


def vote_request(message: core.VoteRequest, cluster_id: str) -> vote.VoteRequest:
    partition = vote.RequestPartitionData(
        replica_epoch=message.epoch,
        replica_id=message.source,
        last_offset_epoch=message.last_epoch,
        last_offset=message.last_offset,
        pre_vote=message.pre_vote,
    )
    return vote.VoteRequest(cluster_id, message.target, [vote.RequestTopicData(CLUSTER_METADATA, [partition])])


def asked_vote(request: vote.VoteRequest, node_id: int, cluster_id: str) -> core.VoteRequest:
    check_cluster(request.cluster_id, cluster_id)
    _only_metadata(request.topics)
    if request.voter_id not in {node_id, -1}:
        raise Refusal(ErrorCode.INVALID_VOTER_KEY)
    asked = request.topics[0].partitions[0]
    return core.VoteRequest(
        asked.replica_id,
        node_id,
        asked.replica_epoch,
        asked.last_offset_epoch,
        asked.last_offset,
        asked.pre_vote,
    )


def vote_response(reply: core.VoteReply) -> vote.VoteResponse:
    partition = vote.ResponsePartitionData(0, reply.error, reply.leader_id, reply.epoch, reply.granted)
    if reply.standing is not core.Standing.ORDINARY:
        partition.unknown_tagged_fields = ((STANDING_TAG, reply.standing.value.encode()),)
    return vote.VoteResponse(topics=[vote.ResponseTopicData(CLUSTER_METADATA, [partition])])


def vote_reply(asked: core.VoteRequest, response: vote.VoteResponse) -> core.VoteReply | None:
    """None: the answer says nothing that the core could use."""
    if response.error_code or not response.topics or not response.topics[0].partitions:
        return None
    answer = response.topics[0].partitions[0]
    standing = dict(answer.unknown_tagged_fields).get(STANDING_TAG)
    return core.VoteReply(
        asked.target,
        asked.source,
        answer.leader_epoch,
        answer.leader_id,
        answer.vote_granted,
        asked.pre_vote,
        ErrorCode(answer.error_code),
        asked.request_id,
        core.Standing.ORDINARY if standing is None else core.Standing(standing.decode()),
    )


# ---- BeginQuorumEpoch -----------------------------------------------------------------------------------------------


def begin_request(message: core.BeginQuorumEpochRequest, cluster_id: str) -> begin.BeginQuorumEpochRequest:
    partition = begin.RequestPartitionData(leader_id=message.source, leader_epoch=message.epoch)
    topic = begin.RequestTopicData(CLUSTER_METADATA, [partition])
    return begin.BeginQuorumEpochRequest(cluster_id, message.target, [topic])


def asked_begin(request: begin.BeginQuorumEpochRequest, node_id: int, cluster_id: str) -> core.BeginQuorumEpochRequest:
    check_cluster(request.cluster_id, cluster_id)
    _only_metadata(request.topics)
    if request.voter_id not in {node_id, -1}:
        raise Refusal(ErrorCode.INVALID_VOTER_KEY)
    asked = request.topics[0].partitions[0]
    return core.BeginQuorumEpochRequest(asked.leader_id, node_id, asked.leader_epoch)


def begin_response(reply: core.BeginQuorumEpochReply) -> begin.BeginQuorumEpochResponse:
    partition = begin.ResponsePartitionData(0, reply.error, reply.leader_id, reply.epoch)
    return begin.BeginQuorumEpochResponse(topics=[begin.ResponseTopicData(CLUSTER_METADATA, [partition])])


def begin_reply(
    asked: core.BeginQuorumEpochRequest, response: begin.BeginQuorumEpochResponse
) -> core.BeginQuorumEpochReply | None:
    if response.error_code or not response.topics or not response.topics[0].partitions:
        return None
    answer = response.topics[0].partitions[0]
    error = ErrorCode(answer.error_code)
    return core.BeginQuorumEpochReply(
        asked.target, asked.source, answer.leader_epoch, answer.leader_id, error, asked.request_id
    )


# ---- EndQuorumEpoch -------------------------------------------------------------------------------------------------


def end_request(message: core.EndQuorumEpochRequest, cluster_id: str) -> end.EndQuorumEpochRequest:
    partition = end.RequestPartitionData(
        leader_id=message.source,
        leader_epoch=message.epoch,
        preferred_candidates=[end.ReplicaInfo(node) for node in message.preferred_successors],
    )
    return end.EndQuorumEpochRequest(cluster_id, [end.RequestTopicData(CLUSTER_METADATA, [partition])])


def asked_end(request: end.EndQuorumEpochRequest, node_id: int, cluster_id: str) -> core.EndQuorumEpochRequest:
    check_cluster(request.cluster_id, cluster_id)
    _only_metadata(request.topics)
    asked = request.topics[0].partitions[0]
    order = asked.preferred_successors or [candidate.candidate_id for candidate in asked.preferred_candidates]
    return core.EndQuorumEpochRequest(asked.leader_id, node_id, asked.leader_epoch, tuple(order))


def end_response(reply: core.EndQuorumEpochReply) -> end.EndQuorumEpochResponse:
    partition = end.ResponsePartitionData(0, reply.error, reply.leader_id, reply.epoch)
    return end.EndQuorumEpochResponse(topics=[end.ResponseTopicData(CLUSTER_METADATA, [partition])])


def end_reply(
    asked: core.EndQuorumEpochRequest, response: end.EndQuorumEpochResponse
) -> core.EndQuorumEpochReply | None:
    if response.error_code or not response.topics or not response.topics[0].partitions:
        return None
    answer = response.topics[0].partitions[0]
    error = ErrorCode(answer.error_code)
    return core.EndQuorumEpochReply(
        asked.target, asked.source, answer.leader_epoch, answer.leader_id, error, asked.request_id
    )


# ---- Fetch ----------------------------------------------------------------------------------------------------------


def fetch_request(message: core.FetchRequest, cluster_id: str, wait_ms: int) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        current_leader_epoch=message.epoch,
        fetch_offset=message.fetch_offset,
        last_fetched_epoch=message.last_fetched_epoch,
        partition_max_bytes=FETCH_BYTES_MAX,
        high_watermark=message.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(message.source),
        max_wait_ms=wait_ms,
        max_bytes=FETCH_BYTES_MAX,
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def is_metadata_fetch(request: fetch.FetchRequest) -> bool:
    """Does a node ask, and for the metadata? For clients there is no such topic."""
    if not request.topics or _replica_id(request) < 0:
        return False
    topic = request.topics[0]
    return topic.topic_id.int == METADATA_TOPIC_ID.int or topic.topic == CLUSTER_METADATA


def _replica_id(request: fetch.FetchRequest) -> int:
    """It stands in one of two places, by version."""
    return max(request.replica_state.replica_id, request.replica_id)


def asked_fetch(request: fetch.FetchRequest, version: int, node_id: int, cluster_id: str) -> core.FetchRequest:
    check_cluster(request.cluster_id, cluster_id)
    if version < FETCH_VERSION_MIN:
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    asked = request.topics[0].partitions[0]
    if asked.partition != 0:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    return core.FetchRequest(
        _replica_id(request),
        node_id,
        asked.current_leader_epoch,
        asked.fetch_offset,
        asked.last_fetched_epoch,
        asked.high_watermark,
    )


def fetch_response(reply: core.FetchReply) -> fetch.FetchResponse:
    data = fetch.PartitionData(
        0,
        reply.error,
        reply.high_watermark,
        last_stable_offset=reply.high_watermark,
        log_start_offset=0,
        current_leader=fetch.LeaderIdAndEpoch(reply.leader_id, reply.epoch),
        records=b"".join(entry.data for entry in reply.entries if isinstance(entry.data, bytes)),
    )
    if reply.diverging is not None:
        data.diverging_epoch = fetch.EpochEndOffset(reply.diverging.epoch, reply.diverging.end_offset)
    if reply.snapshot is not None:
        data.snapshot_id = fetch.SnapshotId(reply.snapshot.end_offset, reply.snapshot.epoch)
    return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(CLUSTER_METADATA, METADATA_TOPIC_ID, [data])])


def fetch_reply(asked: core.FetchRequest, response: fetch.FetchResponse) -> core.FetchReply | None:
    """Raises Malformed for records that cannot be read."""
    if response.error_code or not response.responses or not response.responses[0].partitions:
        return None
    answer = response.responses[0].partitions[0]
    ends, snapshot, leader = answer.diverging_epoch, answer.snapshot_id, answer.current_leader
    return core.FetchReply(
        asked.target,
        asked.source,
        leader.leader_epoch,
        leader.leader_id,
        asked.fetch_offset,
        answer.high_watermark,
        entries=_continuing(asked, leader.leader_epoch, answer.records or b""),
        diverging=None if ends.epoch < 0 else core.EpochEnd(ends.epoch, ends.end_offset),
        snapshot=None if snapshot.end_offset < 0 else core.EpochEnd(snapshot.epoch, snapshot.end_offset),
        error=ErrorCode(answer.error_code),
        request_id=asked.request_id,
    )


def _continuing(asked: core.FetchRequest, epoch: int, records: Buffer) -> tuple[core.Entry, ...]:
    """The entries, which have to go on where the asker's log ends: what does not fit never reaches the core."""
    entries = tuple(decode_entries(records))
    offset, last_epoch = asked.fetch_offset, asked.last_fetched_epoch
    for entry in entries:
        if entry.base_offset != offset or not last_epoch <= entry.epoch <= epoch:
            told = (
                f"offset {entry.base_offset} of epoch {entry.epoch} where {offset} of {last_epoch} to {epoch} should be"
            )
            raise Malformed(told)
        offset, last_epoch = entry.last_offset + 1, entry.epoch
    return entries


# ---- FetchSnapshot --------------------------------------------------------------------------------------------------


def snapshot_request(message: core.FetchSnapshotRequest, cluster_id: str) -> fetch_snapshot.FetchSnapshotRequest:
    partition = fetch_snapshot.RequestPartitionSnapshot(
        current_leader_epoch=message.epoch,
        snapshot_id=fetch_snapshot.RequestSnapshotId(message.snapshot.end_offset, message.snapshot.epoch),
        position=message.position,
    )
    topic = fetch_snapshot.RequestTopicSnapshot(CLUSTER_METADATA, [partition])
    return fetch_snapshot.FetchSnapshotRequest(cluster_id, message.source, message.max_bytes, [topic])


def asked_snapshot(
    request: fetch_snapshot.FetchSnapshotRequest, node_id: int, cluster_id: str
) -> core.FetchSnapshotRequest:
    check_cluster(request.cluster_id, cluster_id)
    if len(request.topics) != 1 or request.topics[0].name != CLUSTER_METADATA or len(request.topics[0].partitions) != 1:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    asked = request.topics[0].partitions[0]
    if asked.partition != 0:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    return core.FetchSnapshotRequest(
        request.replica_id,
        node_id,
        asked.current_leader_epoch,
        core.EpochEnd(asked.snapshot_id.epoch, asked.snapshot_id.end_offset),
        asked.position,
        request.max_bytes,
    )


def snapshot_response(reply: core.FetchSnapshotReply) -> fetch_snapshot.FetchSnapshotResponse:
    partition = fetch_snapshot.ResponsePartitionSnapshot(
        0,
        reply.error,
        fetch_snapshot.ResponseSnapshotId(reply.snapshot.end_offset, reply.snapshot.epoch),
        fetch_snapshot.LeaderIdAndEpoch(reply.leader_id, reply.epoch),
        reply.size,
        reply.position,
        reply.data,
    )
    topic = fetch_snapshot.ResponseTopicSnapshot(CLUSTER_METADATA, [partition])
    return fetch_snapshot.FetchSnapshotResponse(topics=[topic])


def snapshot_reply(
    asked: core.FetchSnapshotRequest, response: fetch_snapshot.FetchSnapshotResponse
) -> core.FetchSnapshotReply | None:
    if response.error_code or not response.topics or not response.topics[0].partitions:
        return None
    answer = response.topics[0].partitions[0]
    return core.FetchSnapshotReply(
        asked.target,
        asked.source,
        answer.current_leader.leader_epoch,
        answer.current_leader.leader_id,
        core.EpochEnd(answer.snapshot_id.epoch, answer.snapshot_id.end_offset),
        answer.position,
        asked.max_bytes,
        answer.size,
        bytes(answer.unaligned_records or b""),
        ErrorCode(answer.error_code),
        asked.request_id,
    )
