"""ConsumerGroupHeartbeat: v0-1 (KIP-848)

Behavior:
* The one request by which members of the consumer protocol join, are assigned partitions, say that they have given up others,
  and leave.
* UNSUPPORTED_VERSION where `group.version` is not finalized at 1.

Version notes:
* v1 a regular expression that the broker evaluates; the member makes its id itself
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import allowed_topics, caller_of, check_group, now_or_later
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.metadata.image import GROUP_VERSION
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(
    context: BrokerRequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    if context.node.metadata.image.feature(GROUP_VERSION) < 1:
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION)
    check_group(context, AclOperation.READ, request.group_id)
    topics = dict.fromkeys(request.subscribed_topic_names or ())
    if len(allowed_topics(context, AclOperation.DESCRIBE, list(topics))) < len(topics):
        raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return now_or_later(context.broker.groups.consumer_heartbeat(request, caller_of(context)))


def refuse(
    context: BrokerRequestContext, request: ConsumerGroupHeartbeatRequest, error: ErrorCode, message: str | None
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)


API: Final = Api(
    key=68,
    min_version=0,
    max_version=1,
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
    handle=handle,
    refuse=refuse,
    acl="READ on the group; DESCRIBE on each topic that is subscribed to by name",
    gaps=("topics that a regular expression matches are not checked for DESCRIBE",),
)
