"""DescribeLogDirs: list this broker's log directory, and the size of each replica in it (KIP-113).

Behavior:
* A node has one log directory. The response covers the replicas of this broker: the requested ones, or all.

Errors:
* CLUSTER_AUTHORIZATION_FAILED.

Version notes:
* v3 has an error for the whole request. v4 has total and usable bytes of the volume (KIP-827).
* v5 has cordoned log directories (KIP-1066); this broker never has one.
"""

from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

TOP_LEVEL_ERROR_MIN_VERSION: Final = 3


def handle(context: BrokerRequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if not context.allowed_on_cluster(AclOperation.DESCRIBE):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    requested = None
    if request.topics is not None:
        requested = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in context.broker.partitions:
        log = partition.log
        if requested is None or (log.topic, log.partition) in requested:
            topics.setdefault(log.topic, []).append(
                DescribeLogDirsPartition(partition_index=log.partition, partition_size=log.segments.size)
            )
    described = [DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in topics.items()]
    directory = context.node.config.log_dirs
    result = DescribeLogDirsResult(log_dir=directory, topics=described)
    for partition in context.broker.partitions:
        disk = partition.log.disk
        result.total_bytes, result.usable_bytes = disk.total_bytes(directory), disk.free_bytes(directory)
        break
    return DescribeLogDirsResponse(results=[result])


def refuse(
    context: BrokerRequestContext, request: DescribeLogDirsRequest, error: ErrorCode, message: str | None
) -> DescribeLogDirsResponse:
    if context.api_version >= TOP_LEVEL_ERROR_MIN_VERSION:
        return DescribeLogDirsResponse(error_code=error)
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(error_code=error)])


API: Final = Api(
    key=35,
    min_version=1,
    max_version=5,
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE on the cluster",
)
