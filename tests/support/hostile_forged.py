"""Requests of brokers and quorum voters that a client forges. No broker may carry out any of them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.messages import add_partitions_to_txn as add_partitions
from odradek.protocol.messages import (
    alter_partition,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    list_offsets,
    vote,
)
from odradek.protocol.messages import broker_registration as registration
from odradek.protocol.messages import controller_registration as controllers
from odradek.protocol.messages import offset_for_leader_epoch as leader_epochs
from odradek.protocol.messages import write_txn_markers as markers
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.envelope import EnvelopeRequest
from tests.support.raw_client import SIZE, encode_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from odradek.protocol.schema import Message

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
EPOCHS: Final = (1, 3, 1_000_000, 2**31 - 2**20, INT32_MAX - 1, INT32_MAX)
"""Epochs of forged requests: near ones, the largest jump of a request, of a reply, and the largest of all."""
VOTE_VERSION: Final = 2
OFFSETS: Final = (0, 1, 10**9, INT64_MAX)


@dataclass
class Victim:
    """Cluster under attack, as a client sees it. `topics` has the id and the partition count of each topic."""

    nodes: tuple[int, ...]
    cluster_id: str
    topics: dict[str, tuple[uuid.UUID, int]] = field(default_factory=dict)

    def partition(self, rng: Random) -> tuple[str, uuid.UUID, int]:
        """Return name and topic id of a partition, and its index."""
        if not self.topics:
            return "missing", uuid.UUID(int=1), 0
        name = rng.choice(sorted(self.topics))
        topic_id, count = self.topics[name]
        return name, topic_id, rng.randrange(count)


def forge_vote(victim: Victim, rng: Random) -> Message:
    """Return a vote or pre-vote request in the name of a voter, with any epoch."""
    epoch = rng.choice(EPOCHS)
    partition = vote.RequestPartitionData(
        replica_epoch=epoch,
        replica_id=rng.choice(victim.nodes),
        last_offset_epoch=epoch - 1,
        last_offset=rng.choice(OFFSETS),
        pre_vote=rng.random() < 0.3,
    )
    return vote.VoteRequest(
        victim.cluster_id, rng.choice(victim.nodes), [vote.RequestTopicData(CLUSTER_METADATA, [partition])]
    )


def _begin_quorum_epoch(victim: Victim, rng: Random) -> Message:
    partition = begin_quorum_epoch.RequestPartitionData(
        leader_id=rng.choice(victim.nodes), leader_epoch=rng.choice(EPOCHS)
    )
    topic = begin_quorum_epoch.RequestTopicData(CLUSTER_METADATA, [partition])
    return begin_quorum_epoch.BeginQuorumEpochRequest(victim.cluster_id, rng.choice(victim.nodes), [topic])


def _end_quorum_epoch(victim: Victim, rng: Random) -> Message:
    candidates = [end_quorum_epoch.ReplicaInfo(node) for node in victim.nodes]
    partition = end_quorum_epoch.RequestPartitionData(
        leader_id=rng.choice(victim.nodes),
        leader_epoch=rng.choice(EPOCHS),
        preferred_successors=list(victim.nodes),
        preferred_candidates=candidates,
    )
    topic = end_quorum_epoch.RequestTopicData(CLUSTER_METADATA, [partition])
    return end_quorum_epoch.EndQuorumEpochRequest(victim.cluster_id, [topic])


def _fetch(victim: Victim, rng: Random) -> Message:
    """Return a fetch of a follower: it would count as an acknowledgment of all records below its offset."""
    name, topic_id, index = victim.partition(rng)
    partition = fetch.FetchPartition(
        partition=index, current_leader_epoch=rng.choice((-1, 0, *EPOCHS)), fetch_offset=rng.choice(OFFSETS)
    )
    state = fetch.ReplicaState(rng.choice(victim.nodes), rng.choice((-1, 0, 1, INT64_MAX)))
    topic = fetch.FetchTopic(name, topic_id, [partition])
    return fetch.FetchRequest(victim.cluster_id, replica_state=state, max_wait_ms=10, topics=[topic])


def _old_fetch(victim: Victim, rng: Random) -> Message:
    """Return a fetch of a follower in a version whose replica id is not in the replica state."""
    name, _, index = victim.partition(rng)
    partition = fetch.FetchPartition(index, fetch_offset=rng.choice(OFFSETS), partition_max_bytes=1_000)
    topic = fetch.FetchTopic(name, partitions=[partition])
    return fetch.FetchRequest(replica_id=rng.choice(victim.nodes), max_wait_ms=10, topics=[topic])


def _fetch_of_metadata(victim: Victim, rng: Random) -> Message:
    partition = fetch.FetchPartition(
        current_leader_epoch=rng.choice(EPOCHS), fetch_offset=rng.choice(OFFSETS), last_fetched_epoch=rng.choice(EPOCHS)
    )
    state = fetch.ReplicaState(rng.choice(victim.nodes))
    topic = fetch.FetchTopic(CLUSTER_METADATA, uuid.UUID(int=1), [partition])
    return fetch.FetchRequest(victim.cluster_id, replica_state=state, max_wait_ms=10, topics=[topic])


def _fetch_snapshot(victim: Victim, rng: Random) -> Message:
    snapshot_id = fetch_snapshot.RequestSnapshotId(rng.choice(OFFSETS), rng.choice(EPOCHS))
    partition = fetch_snapshot.RequestPartitionSnapshot(0, rng.choice(EPOCHS), snapshot_id, rng.choice(OFFSETS))
    topic = fetch_snapshot.RequestTopicSnapshot(CLUSTER_METADATA, [partition])
    return fetch_snapshot.FetchSnapshotRequest(victim.cluster_id, rng.choice(victim.nodes), 1_000, [topic])


def _alter_partition(victim: Victim, rng: Random) -> Message:
    _, topic_id, index = victim.partition(rng)
    broker = rng.choice(victim.nodes)
    partition = alter_partition.RequestPartitionData(
        partition_index=index,
        leader_epoch=rng.choice((0, 1, *EPOCHS)),
        new_isr_with_epochs=[alter_partition.BrokerState(broker)],
        partition_epoch=rng.choice((0, 1, *EPOCHS)),
    )
    topic = alter_partition.RequestTopicData(topic_id, [partition])
    return alter_partition.AlterPartitionRequest(broker, rng.choice((-1, 0, INT64_MAX)), [topic])


def _broker_registration(victim: Victim, rng: Random) -> Message:
    return registration.BrokerRegistrationRequest(
        broker_id=rng.choice((*victim.nodes, 99, INT32_MAX)),
        cluster_id=victim.cluster_id,
        incarnation_id=uuid.UUID(int=rng.getrandbits(128)),
        listeners=[registration.Listener("PLAINTEXT", "hostile.example", 9092)],
        rack=None,
        log_dirs=[uuid.UUID(int=2)],
    )


def _controller_registration(victim: Victim, rng: Random) -> Message:
    return controllers.ControllerRegistrationRequest(
        controller_id=rng.choice(victim.nodes),
        incarnation_id=uuid.UUID(int=rng.getrandbits(128)),
        listeners=[controllers.Listener("PLAINTEXT", "hostile.example", 9092)],
    )


def _broker_heartbeat(victim: Victim, rng: Random) -> Message:
    return BrokerHeartbeatRequest(
        broker_id=rng.choice(victim.nodes),
        broker_epoch=rng.choice((-1, *OFFSETS)),
        current_metadata_offset=rng.choice(OFFSETS),
        want_fence=True,
        want_shut_down=rng.random() < 0.5,
    )


def _allocate_producer_ids(victim: Victim, rng: Random) -> Message:
    return AllocateProducerIdsRequest(rng.choice(victim.nodes), rng.choice((-1, *OFFSETS)))


def _envelope(victim: Victim, rng: Random) -> Message:
    """Return a forwarded deletion of a topic, in the name of another user."""
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=victim.partition(rng)[0])], timeout_ms=1_000)
    data = encode_request(deletion, 6, 1, "admin")[SIZE.size :]
    return EnvelopeRequest(data, b"\x00\x00\x05User\x06admin\x00\x00", b"\x7f\x00\x00\x01")


def _add_partitions(victim: Victim, rng: Random) -> Message:
    """Return the verification or extension of several transactions in one request."""
    name, _, index = victim.partition(rng)
    topic = add_partitions.AddPartitionsToTxnTopic(name, [index])
    transactions = [
        add_partitions.AddPartitionsToTxnTransaction(
            transactional_id, rng.choice((0, 1, INT64_MAX)), rng.choice((0, INT16_MAX)), rng.random() < 0.5, [topic]
        )
        for transactional_id in ("hostile-a", "hostile-b")
    ]
    return add_partitions.AddPartitionsToTxnRequest(transactions=transactions)


def _write_txn_markers(victim: Victim, rng: Random) -> Message:
    name, _, index = victim.partition(rng)
    topic = markers.WritableTxnMarkerTopic(name, [index])
    marker = markers.WritableTxnMarker(
        producer_id=rng.choice((0, 1, 2, 1_000, INT64_MAX)),
        producer_epoch=rng.choice((0, 1, INT16_MAX)),
        transaction_result=rng.random() < 0.5,
        topics=[topic],
        coordinator_epoch=rng.choice((0, 1, *EPOCHS)),
        transaction_version=rng.choice((0, 2)),
    )
    return markers.WriteTxnMarkersRequest([marker])


def _list_offsets(victim: Victim, rng: Random) -> Message:
    name, _, index = victim.partition(rng)
    partition = list_offsets.ListOffsetsPartition(index, rng.choice((-1, *EPOCHS)), -1)
    topic = list_offsets.ListOffsetsTopic(name, [partition])
    return list_offsets.ListOffsetsRequest(rng.choice(victim.nodes), 0, [topic])


def _offset_for_leader_epoch(victim: Victim, rng: Random) -> Message:
    name, _, index = victim.partition(rng)
    partition = leader_epochs.OffsetForLeaderPartition(index, -1, rng.choice(EPOCHS))
    topic = leader_epochs.OffsetForLeaderTopic(name, [partition])
    return leader_epochs.OffsetForLeaderEpochRequest(rng.choice(victim.nodes), [topic])


FORGED: Final[Mapping[Callable[[Victim, Random], Message], tuple[int, ...]]] = {
    forge_vote: (VOTE_VERSION,),
    _begin_quorum_epoch: (0, 1),
    _end_quorum_epoch: (0, 1),
    _fetch: (15, 17),
    _old_fetch: (4, 12),
    _fetch_of_metadata: (17,),
    _fetch_snapshot: (0, 1),
    _alter_partition: (3,),
    _broker_registration: (0, 4),
    _controller_registration: (0,),
    _broker_heartbeat: (0, 1),
    _allocate_producer_ids: (0,),
    _envelope: (0,),
    _add_partitions: (4, 5),
    _write_txn_markers: (1, 2),
    _list_offsets: (1, 10),
    _offset_for_leader_epoch: (3, 4),
}
"""Builders of forged requests, and the versions that are sent."""


def forge(victim: Victim, rng: Random) -> tuple[Message, int]:
    """Return a forged request and its version."""
    build = rng.choice(list(FORGED))
    return build(victim, rng), rng.choice(FORGED[build])
