"""Translate messages of the Raft core into Kafka's Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot.

The messages are those of KIP-595, KIP-630 and KIP-996, with one addition: a voter that may have lost votes or entries
sends its standing with its vote, in a tagged field that Kafka does not know and skips (decision 0040).

There are four functions per message:

- `X_request` translates a core message into the request.
- `received_X` translates a received request into a core message. It raises Refusal(INVALID_REQUEST,
  INCONSISTENT_CLUSTER_ID, INVALID_VOTER_KEY or UNSUPPORTED_VERSION).
- `X_response` translates the reply of the core into the response.
- `X_reply` translates a received response into a reply for the core; None if the core has no use for it.

They check the structure of messages. The core checks the content.
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
"""Tag of the standing in a Vote response, far above the tags that Kafka assigns."""
FETCH_VERSION_MIN: Final = 12
"""First version of Fetch with diverging epochs and snapshot ids."""
FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum bytes of metadata records per Fetch, as in Kafka's KafkaRaftClient."""


class _Topic(Protocol):
    topic_name: str

    @property
    def partitions(self) -> "Sequence[_Partition]": ...


class _Partition(Protocol):
    partition_index: int


def check_cluster(requested: str | None, cluster_id: str) -> None:
    """Raise Refusal(INCONSISTENT_CLUSTER_ID) if the request has the id of another cluster. None is every cluster."""
    if requested is not None and requested != cluster_id:
        raise Refusal(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the request is for cluster {requested}, but this is cluster {cluster_id}",
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


def received_vote(request: vote.VoteRequest, node_id: int, cluster_id: str) -> core.VoteRequest:
    check_cluster(request.cluster_id, cluster_id)
    _only_metadata(request.topics)
    if request.voter_id not in {node_id, -1}:
        raise Refusal(ErrorCode.INVALID_VOTER_KEY)
    partition = request.topics[0].partitions[0]
    return core.VoteRequest(
        partition.replica_id,
        node_id,
        partition.replica_epoch,
        partition.last_offset_epoch,
        partition.last_offset,
        partition.pre_vote,
    )


def vote_response(reply: core.VoteReply) -> vote.VoteResponse:
    partition = vote.ResponsePartitionData(0, reply.error, reply.leader_id, reply.epoch, reply.granted)
    if reply.standing is not core.Standing.ORDINARY:
        partition.unknown_tagged_fields = ((STANDING_TAG, reply.standing.value.encode()),)
    return vote.VoteResponse(topics=[vote.ResponseTopicData(CLUSTER_METADATA, [partition])])


def vote_reply(request: core.VoteRequest, response: vote.VoteResponse) -> core.VoteReply | None:
    if response.error_code or not response.topics or not response.topics[0].partitions:
        return None
    partition = response.topics[0].partitions[0]
    standing = dict(partition.unknown_tagged_fields).get(STANDING_TAG)
    return core.VoteReply(
        request.target,
        request.source,
        partition.leader_epoch,
        partition.leader_id,
        partition.vote_granted,
        request.pre_vote,
        ErrorCode(partition.error_code),
        request.request_id,
        core.Standing.ORDINARY if standing is None else core.Standing(standing.decode()),
    )


# ---- BeginQuorumEpoch -----------------------------------------------------------------------------------------------


def begin_request(message: core.BeginQuorumEpochRequest, cluster_id: str) -> begin.BeginQuorumEpochRequest:
    partition = begin.RequestPartitionData(leader_id=message.source, leader_epoch=message.epoch)
    topic = begin.RequestTopicData(CLUSTER_METADATA, [partition])
    return begin.BeginQuorumEpochRequest(cluster_id, message.target, [topic])


def received_begin(
    request: begin.BeginQuorumEpochRequest, node_id: int, cluster_id: str
) -> core.BeginQuorumEpochRequest:
    check_cluster(request.cluster_id, cluster_id)
    _only_metadata(request.topics)
    if request.voter_id not in {node_id, -1}:
        raise Refusal(ErrorCode.INVALID_VOTER_KEY)
    partition = request.topics[0].partitions[0]
    return core.BeginQuorumEpochRequest(partition.leader_id, node_id, partition.leader_epoch)


def begin_response(reply: core.BeginQuorumEpochReply) -> begin.BeginQuorumEpochResponse:
    partition = begin.ResponsePartitionData(0, reply.error, reply.leader_id, reply.epoch)
    return begin.BeginQuorumEpochResponse(topics=[begin.ResponseTopicData(CLUSTER_METADATA, [partition])])


def begin_reply(
    request: core.BeginQuorumEpochRequest, response: begin.BeginQuorumEpochResponse
) -> core.BeginQuorumEpochReply | None:
    if response.error_code or not response.topics or not response.topics[0].partitions:
        return None
    partition = response.topics[0].partitions[0]
    error = ErrorCode(partition.error_code)
    return core.BeginQuorumEpochReply(
        request.target, request.source, partition.leader_epoch, partition.leader_id, error, request.request_id
    )


# ---- EndQuorumEpoch -------------------------------------------------------------------------------------------------


def end_request(message: core.EndQuorumEpochRequest, cluster_id: str) -> end.EndQuorumEpochRequest:
    partition = end.RequestPartitionData(
        leader_id=message.source,
        leader_epoch=message.epoch,
        preferred_candidates=[end.ReplicaInfo(node) for node in message.preferred_successors],
    )
    return end.EndQuorumEpochRequest(cluster_id, [end.RequestTopicData(CLUSTER_METADATA, [partition])])


def received_end(request: end.EndQuorumEpochRequest, node_id: int, cluster_id: str) -> core.EndQuorumEpochRequest:
    check_cluster(request.cluster_id, cluster_id)
    _only_metadata(request.topics)
    partition = request.topics[0].partitions[0]
    order = partition.preferred_successors or [candidate.candidate_id for candidate in partition.preferred_candidates]
    return core.EndQuorumEpochRequest(partition.leader_id, node_id, partition.leader_epoch, tuple(order))


def end_response(reply: core.EndQuorumEpochReply) -> end.EndQuorumEpochResponse:
    partition = end.ResponsePartitionData(0, reply.error, reply.leader_id, reply.epoch)
    return end.EndQuorumEpochResponse(topics=[end.ResponseTopicData(CLUSTER_METADATA, [partition])])


def end_reply(
    request: core.EndQuorumEpochRequest, response: end.EndQuorumEpochResponse
) -> core.EndQuorumEpochReply | None:
    if response.error_code or not response.topics or not response.topics[0].partitions:
        return None
    partition = response.topics[0].partitions[0]
    error = ErrorCode(partition.error_code)
    return core.EndQuorumEpochReply(
        request.target, request.source, partition.leader_epoch, partition.leader_id, error, request.request_id
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
    """Return True if a node fetches the metadata log. For clients, that topic does not exist."""
    if not request.topics or _replica_id(request) < 0:
        return False
    topic = request.topics[0]
    return topic.topic_id.int == METADATA_TOPIC_ID.int or topic.topic == CLUSTER_METADATA


def _replica_id(request: fetch.FetchRequest) -> int:
    """Return the replica id, which is in one of two fields, by version (KIP-903)."""
    return max(request.replica_state.replica_id, request.replica_id)


def received_fetch(request: fetch.FetchRequest, version: int, node_id: int, cluster_id: str) -> core.FetchRequest:
    check_cluster(request.cluster_id, cluster_id)
    if version < FETCH_VERSION_MIN:
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    partition = request.topics[0].partitions[0]
    if partition.partition != 0:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    return core.FetchRequest(
        _replica_id(request),
        node_id,
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.high_watermark,
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


def fetch_reply(request: core.FetchRequest, response: fetch.FetchResponse) -> core.FetchReply | None:
    """Translate a Fetch response.

    Raise Malformed if its records are malformed or do not continue the log, or if it names an impossible epoch end.
    """
    if response.error_code or not response.responses or not response.responses[0].partitions:
        return None
    partition = response.responses[0].partitions[0]
    leader = partition.current_leader
    ends, snapshot = partition.diverging_epoch, partition.snapshot_id
    return core.FetchReply(
        request.target,
        request.source,
        leader.leader_epoch,
        leader.leader_id,
        request.fetch_offset,
        partition.high_watermark,
        entries=_continuing(request, leader.leader_epoch, partition.records or b""),
        diverging=None if ends.epoch < 0 else _epoch_end(ends.epoch, ends.end_offset, leader.leader_epoch),
        snapshot=None
        if snapshot.end_offset < 0
        else _epoch_end(snapshot.epoch, snapshot.end_offset, leader.leader_epoch),
        error=ErrorCode(partition.error_code),
        request_id=request.request_id,
    )


def _epoch_end(epoch: int, end_offset: int, leader_epoch: int) -> core.EpochEnd:
    """Return the end of an epoch. Raise Malformed if the leader of `leader_epoch` cannot have it."""
    if not 0 <= epoch <= leader_epoch or end_offset < 0:
        raise Malformed(f"epoch {epoch} with end offset {end_offset} from a leader of epoch {leader_epoch}")
    return core.EpochEnd(epoch, end_offset)


def _continuing(request: core.FetchRequest, epoch: int, records: Buffer) -> tuple[core.Entry, ...]:
    """Decode the entries. Raise Malformed if they do not continue the log of the fetching replica."""
    entries = tuple(decode_entries(records))
    offset, last_epoch = request.fetch_offset, request.last_fetched_epoch
    for entry in entries:
        if entry.base_offset != offset or not last_epoch <= entry.epoch <= epoch:
            raise Malformed(
                f"batch at offset {entry.base_offset} with epoch {entry.epoch}, expected offset {offset} with an epoch"
                f" from {last_epoch} to {epoch}"
            )
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


def received_snapshot(
    request: fetch_snapshot.FetchSnapshotRequest, node_id: int, cluster_id: str
) -> core.FetchSnapshotRequest:
    check_cluster(request.cluster_id, cluster_id)
    if len(request.topics) != 1 or request.topics[0].name != CLUSTER_METADATA or len(request.topics[0].partitions) != 1:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    partition = request.topics[0].partitions[0]
    if partition.partition != 0:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    return core.FetchSnapshotRequest(
        request.replica_id,
        node_id,
        partition.current_leader_epoch,
        core.EpochEnd(partition.snapshot_id.epoch, partition.snapshot_id.end_offset),
        partition.position,
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
    request: core.FetchSnapshotRequest, response: fetch_snapshot.FetchSnapshotResponse
) -> core.FetchSnapshotReply | None:
    if response.error_code or not response.topics or not response.topics[0].partitions:
        return None
    partition = response.topics[0].partitions[0]
    return core.FetchSnapshotReply(
        request.target,
        request.source,
        partition.current_leader.leader_epoch,
        partition.current_leader.leader_id,
        core.EpochEnd(partition.snapshot_id.epoch, partition.snapshot_id.end_offset),
        partition.position,
        request.max_bytes,
        partition.size,
        bytes(partition.unaligned_records or b""),
        ErrorCode(partition.error_code),
        request.request_id,
    )
