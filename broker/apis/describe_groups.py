"""DescribeGroups: describe classic groups (KIP-40).

Behavior:
* Each group has its own result: state, protocol, and each member with its metadata and assignment.
* Up to v5, a group that does not exist is described in the state Dead without an error (as in Kafka).

Errors:
* Per group: GROUP_AUTHORIZATION_FAILED, the errors of the group coordinator, and from v6 GROUP_ID_NOT_FOUND.

Version notes:
* v3 has authorized operations (KIP-430). v4 has static members (KIP-345). v5 is flexible.
* v6 has GROUP_ID_NOT_FOUND for a group that does not exist, and an error message (KIP-1043).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import request_each, responses_of
from odradek.broker.requests.api import Api, Ordered, split_by
from odradek.broker.requests.slices import collect_charged
from odradek.broker.requests.splitting import DESCRIBED_PER_PART, ELEMENT_CHARGE_BYTES_MIN
from odradek.broker.security.authorized_operations import group_operations
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

GROUP_BYTES: Final = 2_000
"""Maximum bytes of a described group without its members, in addition to its id, which the request has."""
OPERATIONS_MIN_VERSION: Final = 3
ERROR_MESSAGE_MIN_VERSION: Final = 6


def handle(context: BrokerRequestContext, request: DescribeGroupsRequest) -> Ordered[DescribeGroupsResponse]:
    allowed, denied = context.split_allowed(AclOperation.DESCRIBE, ResourceType.GROUP, request.groups)
    operations = request.include_authorized_operations and context.api_version >= OPERATIONS_MIN_VERSION
    groups, hidden = context.broker.groups, dict.fromkeys(denied)
    return collect_charged(
        context,
        DescribeGroupsResponse,
        [*denied, *allowed],
        lambda group: GROUP_BYTES + (0 if group in hidden else groups.described_bytes_max(group)),
        partial(_describe, context, denied=hidden, operations=operations),
        lambda described: DescribeGroupsResponse(groups=described),
    )


def refuse(
    context: BrokerRequestContext, request: DescribeGroupsRequest, error: ErrorCode, message: str | None
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_refused(context, group, error, message) for group in request.groups])


async def _describe(
    context: BrokerRequestContext, groups: Sequence[str], denied: Mapping[str, None], *, operations: bool
) -> list[DescribedGroup]:
    """Describe some groups of the request."""
    refused = [
        _refused(context, group, ErrorCode.GROUP_AUTHORIZATION_FAILED, None) for group in groups if group in denied
    ]
    allowed = [group for group in groups if group not in denied]
    pending = request_each(allowed, lambda group: context.broker.groups.describe(group, context.api_version))
    described = await responses_of(context, pending, partial(_refused, context))
    for group in described:
        if operations and not group.error_code:
            group.authorized_operations = group_operations(context, group.group_id)
    return refused + described


def _refused(context: BrokerRequestContext, group: str, error: ErrorCode, message: str | None) -> DescribedGroup:
    sent_message = message if context.api_version >= ERROR_MESSAGE_MIN_VERSION else None
    return DescribedGroup(error_code=error, error_message=sent_message, group_id=group)


API: Final = Api(
    key=15,
    min_version=0,
    max_version=6,
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
    handle=handle,
    refuse=refuse,
    splitting=split_by(("groups",), ("groups",), DESCRIBED_PER_PART, hashed=str),
    parts_charge_bytes_min=ELEMENT_CHARGE_BYTES_MIN * DESCRIBED_PER_PART,
    acl="DESCRIBE on each group",
)
