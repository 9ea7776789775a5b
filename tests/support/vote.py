"""A Vote request that a process without the cluster secret can make."""

from odradek.protocol.messages.vote import RequestPartitionData, RequestTopicData, VoteRequest


def vote_request(cluster_id: str) -> VoteRequest:
    """Return a pre-vote request of node 2 to node 1, of version 2. It changes nothing."""
    partition = RequestPartitionData(replica_id=2, replica_epoch=0, pre_vote=True)
    return VoteRequest(cluster_id, 1, [RequestTopicData("__cluster_metadata", [partition])])
