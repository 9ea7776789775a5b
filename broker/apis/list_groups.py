"""ListGroups: list the groups that this broker coordinates.

Behavior:
* The response omits groups that the client may not describe.

Errors:
* COORDINATOR_LOAD_IN_PROGRESS while the broker loads a partition of `__consumer_offsets`.

Version notes:
* v3 is flexible. v4 has the filter by state (KIP-518). v5 has the filter by type (KIP-848).
"""

from collections.abc import Sequence
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.slices import collect_charged
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.coordinator.group.core import GroupShard
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.runtime.shards import LedShard


def handle(context: BrokerRequestContext, request: ListGroupsRequest) -> Ordered[ListGroupsResponse]:
    groups = context.broker.groups
    states = frozenset(name.strip().lower() for name in request.states_filter)
    types = frozenset(name.lower() for name in request.types_filter)

    async def list_shards(shards: Sequence[LedShard[GroupShard]]) -> list[ListedGroup]:
        return _visible(context, await groups.list_groups(states, types, shards))

    return collect_charged(
        context,
        ListGroupsResponse,
        groups.all_shards(),
        groups.listed_bytes_max,
        list_shards,
        lambda listed: ListGroupsResponse(groups=listed),
    )


def refuse(
    context: BrokerRequestContext, request: ListGroupsRequest, error: ErrorCode, message: str | None
) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error)


def _visible(context: BrokerRequestContext, groups: list[ListedGroup]) -> list[ListedGroup]:
    """Return the groups that the client may describe."""
    if context.permits_on_cluster(AclOperation.DESCRIBE):
        return groups
    names = [group.group_id for group in groups]
    visible = dict.fromkeys(context.permitted(AclOperation.DESCRIBE, ResourceType.GROUP, names))
    return [group for group in groups if group.group_id in visible]


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
