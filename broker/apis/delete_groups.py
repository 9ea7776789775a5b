"""DeleteGroups: delete groups and their committed offsets (KIP-229).

Behavior:
* Each group has its own result.

Errors:
* Per group: GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP if the group has members or if an open
  transaction has pending offsets of it, and the errors of the group coordinator.

Version notes:
* v2 is flexible.
* v3 has an error message per group. Apache Kafka sets it only for streams groups. This broker sets it if the group
  coordinator gives a reason beside the error code.
"""

from asyncio import Future
from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import request_each, responses_of
from odradek.broker.requests.api import Api, split_by
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(context: BrokerRequestContext, request: DeleteGroupsRequest) -> Awaitable[DeleteGroupsResponse]:
    names = list(dict.fromkeys(request.groups_names))
    allowed, denied = context.split_allowed(AclOperation.DELETE, ResourceType.GROUP, names)
    pending = request_each(allowed, context.broker.groups.delete)
    return _delete(context, pending, [_result(group, ErrorCode.GROUP_AUTHORIZATION_FAILED, None) for group in denied])


def refuse(
    context: BrokerRequestContext, request: DeleteGroupsRequest, error: ErrorCode, message: str | None
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[_result(group, error, message) for group in request.groups_names])


async def _delete(
    context: BrokerRequestContext, pending: list[tuple[str, Future[None] | Refusal]], denied: list[DeletableGroupResult]
) -> DeleteGroupsResponse:
    results = await responses_of(context, pending, _result)
    deleted = [result or DeletableGroupResult(group) for (group, _), result in zip(pending, results, strict=True)]
    return DeleteGroupsResponse(results=deleted + denied)


def _result(group: str, error: ErrorCode, message: str | None) -> DeletableGroupResult:
    return DeletableGroupResult(group, error, message)


API: Final = Api(
    key=42,
    min_version=0,
    max_version=3,
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
    handle=handle,
    refuse=refuse,
    splitting=split_by(("groups_names",), ("results",), hashed=str),
    acl="DELETE on each group",
)
