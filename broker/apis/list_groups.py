"""ListGroups: list the groups that this broker coordinates.

Behavior:
* The response omits groups that the client may not describe.

Errors:
* COORDINATOR_LOAD_IN_PROGRESS while the broker loads a partition of `__consumer_offsets`.

Version notes:
* v3 is flexible. v4 has the filter by state (KIP-518). v5 has the filter by type (KIP-848).
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.requests.splitting import ELEMENTS_PER_PART
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(context: BrokerRequestContext, request: ListGroupsRequest) -> Awaitable[ListGroupsResponse]:
    return _list(context, request)


def refuse(
    context: BrokerRequestContext, request: ListGroupsRequest, error: ErrorCode, message: str | None
) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error)


async def _list(context: BrokerRequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    groups = await context.broker.groups.list_groups(tuple(request.states_filter), tuple(request.types_filter))
    if not context.allowed_on_cluster(AclOperation.DESCRIBE):
        names = [group.group_id for group in groups]
        visible = dict.fromkeys(context.split_allowed(AclOperation.DESCRIBE, ResourceType.GROUP, names)[0])
        groups = [group for group in groups if group.group_id in visible]
    context.encode_in_slices = len(groups) > ELEMENTS_PER_PART
    return ListGroupsResponse(groups=groups)


API: Final = Api(
    key=16,
    min_version=0,
    max_version=5,
    request=ListGroupsRequest,
    response=ListGroupsResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE on the cluster, or on each group that is listed",
)
