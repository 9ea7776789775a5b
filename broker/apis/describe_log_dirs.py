"""DescribeLogDirs: list this broker's log directory, and the size of each replica in it (KIP-113).

Behavior:
* A node has one log directory. The response covers the replicas of this broker: the requested ones, or all.
* A replica that is offline after a failed disk operation is left out, as Kafka leaves out those of a failed directory.

Errors:
* CLUSTER_AUTHORIZATION_FAILED.

Version notes:
* v3 has an error for the whole request. v4 has total and usable bytes of the volume (KIP-827).
* v5 has cordoned log directories (KIP-1066); this broker never has one.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.slices import completed, distinct, respond_in_parts
from odradek.broker.requests.splitting import ELEMENTS_PER_PART, Splitting
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.protocol.schema import replace_fields
from odradek.storage.log.log import PartitionLog

TOP_LEVEL_ERROR_MIN_VERSION: Final = 3

PARTS: Final = Splitting(("topics", "partitions"), ("results", "topics", "partitions"))
Result = DescribeLogDirsResponse | Ordered[DescribeLogDirsResponse]


def handle(context: BrokerRequestContext, request: DescribeLogDirsRequest) -> Result:
    if not context.allowed_on_cluster(AclOperation.DESCRIBE):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if PARTS.is_large(request):
        return Ordered(_handle_large(context, request))
    return _describe(context, None if request.topics is None else _partitions(request))


async def _handle_large(context: BrokerRequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    return await completed(_describe(context, await distinct(context, PARTS, request, _partitions)))


def _partitions(request: DescribeLogDirsRequest) -> Iterator[tuple[str, int]]:
    return ((topic.topic, index) for topic in request.topics or () for index in topic.partitions)


def _describe(context: BrokerRequestContext, requested: Iterable[tuple[str, int]] | None) -> Result:
    """Describe the requested partitions, or all of this broker if `requested` is None."""
    directory = context.node.config.log_dirs
    result = DescribeLogDirsResult(log_dir=directory)
    logs = [partition.log for partition in context.broker.partitions if partition.online]
    if logs:
        disk = logs[0].disk
        result.total_bytes, result.usable_bytes = disk.total_bytes(directory), disk.free_bytes(directory)
    if requested is not None:
        chosen = dict.fromkeys(requested)
        logs = [log for log in logs if (log.topic, log.partition) in chosen]
    respond = partial(_response, result)
    if len(logs) <= ELEMENTS_PER_PART:
        return respond(logs)
    return Ordered(respond_in_parts(context, PARTS, DescribeLogDirsResponse, logs, respond))


def _response(result: DescribeLogDirsResult, logs: Sequence[PartitionLog]) -> DescribeLogDirsResponse:
    """Return a response with the partitions of `logs` in `result`, which describes the log directory."""
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for log in logs:
        row = DescribeLogDirsPartition(partition_index=log.partition, partition_size=log.segments.size)
        topics.setdefault(log.topic, []).append(row)
    described = [DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in topics.items()]
    return DescribeLogDirsResponse(results=[replace_fields(result, topics=described)])


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
