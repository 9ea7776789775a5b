"""DeleteGroups: v0-2

Behavior:
* A group goes with its offsets, unless it has members, or an open transaction has offsets of it pending: NON_EMPTY_GROUP.
* Groups are answered each by itself.

Version notes:
* v2 flexible
"""

from asyncio import Future
from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import answers_of, ask_each
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(context: BrokerRequestContext, request: DeleteGroupsRequest) -> Awaitable[DeleteGroupsResponse]:
    names = list(dict.fromkeys(request.groups_names))
    allowed, denied = context.split_allowed(AclOperation.DELETE, ResourceType.GROUP, names)
    asked = ask_each(allowed, context.broker.groups.delete)
    return _deleted(context, asked, [_result(group, ErrorCode.GROUP_AUTHORIZATION_FAILED) for group in denied])


def refuse(
    context: BrokerRequestContext, request: DeleteGroupsRequest, error: ErrorCode, message: str | None
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[_result(group, error) for group in request.groups_names])


async def _deleted(
    context: BrokerRequestContext, asked: list[tuple[str, Future[None] | Refusal]], denied: list[DeletableGroupResult]
) -> DeleteGroupsResponse:
    errors = await answers_of(context, asked, lambda _group, error, _message: error)
    return DeleteGroupsResponse(
        results=[_result(group, error or ErrorCode.NONE) for (group, _), error in zip(asked, errors, strict=True)]
        + denied
    )


def _result(group: str, error: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group, error)


API: Final = Api(
    key=42,
    min_version=0,
    max_version=2,
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
    handle=handle,
    refuse=refuse,
    acl="DELETE on each group",
)
