"""Respond to a Fetch with the replica id of a broker that is not registered."""

from odradek.broker.fetch.read import error_partition_data
from odradek.broker.fetch.requested import PARTITIONS_PER_TURN, READING_BYTES, partition_count, slices
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.error_map import wire_error
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse
from odradek.protocol.special_values import NO_LEADER_EPOCH
from odradek.storage.batches.work import WorkSlice


async def response_to_unknown_replica(context: RequestContext, request: FetchRequest) -> FetchResponse:
    """Return an error of each partition, without a session: no registered broker has this replica id.

    The errors are Kafka's for a broker that has no replica of the partition. The metadata of a follower that sends a
    leader epoch may be newer than the metadata of this broker.
    """

    def error(partition: FetchPartition) -> ErrorCode:
        knows_epoch = partition.current_leader_epoch != NO_LEADER_EPOCH
        found = ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return wire_error(context.api_key, context.api_version, found)

    context.reserve(READING_BYTES * partition_count(request))
    response, work = FetchResponse(), WorkSlice(PARTITIONS_PER_TURN)
    for topic in request.topics:
        topic_response = FetchableTopicResponse(topic.topic, topic.topic_id, [])
        response.responses.append(topic_response)
        for partitions in slices(topic.partitions):
            topic_response.partitions += [error_partition_data(each.partition, error(each)) for each in partitions]
            if work.spend(1 + len(partitions)):
                await context.session.next_turn()
    context.encode_in_slices = partition_count(request) > PARTITIONS_PER_TURN
    return response
