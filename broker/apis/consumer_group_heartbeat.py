"""ConsumerGroupHeartbeat: join, keep and leave a group of the consumer protocol (KIP-848).

Behavior:
* One request serves all steps of a member: it joins, receives assignments, reports revoked partitions, and leaves.

Errors:
* UNSUPPORTED_VERSION if the feature `group.version` is not finalized at level 1, then GROUP_AUTHORIZATION_FAILED, then
  TOPIC_AUTHORIZATION_FAILED if the member may not describe one of the topics it names, then the error of the group
  coordinator (UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID and others).

Version notes:
* v1 has a regular expression that the broker evaluates. The member generates its member id (KIP-1082).
"""

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import allowed_topics, caller_of, check_group, result_or_future
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.metadata.image import GROUP_VERSION
from odradek.coordinator.group.commands import DescribableTopics
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
    if len(allowed_topics(context, AclOperation.DESCRIBE, topics, by_id=False)) < len(topics):
        raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    caller = caller_of(context)
    if context.authorizer.enabled:
        caller = replace(caller, describable=_describable(context))
    return result_or_future(context.broker.groups.consumer_heartbeat(request, caller))


def _describable(context: BrokerRequestContext) -> DescribableTopics:
    """Return the function that selects the topics that the client may describe, also after this request."""
    authorizer, session = context.authorizer, context.session
    principal, host = session.principal, session.client_host

    def describable(topics: Sequence[str]) -> list[str]:
        decisions = authorizer.authorize(principal, host, AclOperation.DESCRIBE, ResourceType.TOPIC, topics)
        return [topic for topic, is_allowed in zip(topics, decisions, strict=True) if is_allowed]

    return describable


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
    acl="READ on the group; DESCRIBE on each topic of a subscription by name; an expression matches only such topics",
)
