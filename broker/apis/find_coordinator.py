"""FindCoordinator: v0-v6

Behavior:
* The coordinator of a transactional id is the leader of its partition of `__transaction_state`, that of a group the
  leader of its partition of `__consumer_offsets`. The topic is made when it is first asked for; the answer waits for
  it, where Kafka answers COORDINATOR_NOT_AVAILABLE and lets the client come again.
* COORDINATOR_NOT_AVAILABLE while the topic cannot be made (too few brokers for the replication factor that was set) or
  its partition has no leader that can be reached on this listener.
* While a broker has just been lost and nobody knows yet whether it is dead, the answer waits for that, 1 s at most.

Version notes:
* v1: transactions · v4: many keys in one request (KIP-699) · v6: share groups (KIP-932)
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.topics.metadata_view import MetadataView
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.coordinator.hashing import partition_for
from odradek.protocol.errors import ErrorCode
from odradek.protocol.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

KEY_TYPE_MIN_VERSION: Final = 1
MANY_KEYS_MIN_VERSION: Final = 4
SHARE_GROUPS_MIN_VERSION: Final = 6
GROUP, TRANSACTION, SHARE = 0, 1, 2
NO_NODE: Final = -1


@dataclass(frozen=True, slots=True)
class _Kind:
    """Whose coordinator is looked for."""

    topic: str
    resource: ResourceType
    denied: ErrorCode


_KINDS: Final = {
    GROUP: _Kind(CONSUMER_OFFSETS, ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    TRANSACTION: _Kind(
        TRANSACTION_STATE, ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    ),
}


def handle(
    context: BrokerRequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    key_type = request.key_type if context.api_version >= KEY_TYPE_MIN_VERSION else GROUP
    known = key_type in {GROUP, TRANSACTION} or (key_type == SHARE and context.api_version >= SHARE_GROUPS_MIN_VERSION)
    if not known:
        return refuse(context, request, ErrorCode.INVALID_REQUEST, f"coordinator type {key_type} is not known")
    if context.broker.suspected_leaders.any():
        return _when_settled(context, request, key_type)
    return _now(context, request, key_type)


async def _when_settled(
    context: BrokerRequestContext, request: FindCoordinatorRequest, key_type: int
) -> FindCoordinatorResponse:
    """A broker has just been lost: who coordinates instead is known in a moment."""
    await context.broker.suspected_leaders.decided()
    answer = _now(context, request, key_type)
    return answer if isinstance(answer, FindCoordinatorResponse) else await answer


def _now(
    context: BrokerRequestContext, request: FindCoordinatorRequest, key_type: int
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    kind = _KINDS.get(key_type)
    if kind is not None and context.node.metadata.image.topic(kind.topic) is None:
        return _when_made(context, request, kind)
    return _answer(context, request, kind)


async def _when_made(
    context: BrokerRequestContext, request: FindCoordinatorRequest, kind: _Kind
) -> FindCoordinatorResponse:
    # A refusal shows in the answer: the topic is still not there.
    await context.broker.auto_topic_creation.create([kind.topic])
    return _answer(context, request, kind)


def _answer(
    context: BrokerRequestContext, request: FindCoordinatorRequest, kind: _Kind | None
) -> FindCoordinatorResponse:
    keys = _keys(context, request)
    if kind is None:
        return _response(context, [_share(context, key) for key in keys])
    view = MetadataView(context.node.metadata.image, context.session.listener.name)
    return _response(context, [_coordinator(context, view, kind, key) for key in keys])


def _keys(context: BrokerRequestContext, request: FindCoordinatorRequest) -> list[str]:
    return request.coordinator_keys if context.api_version >= MANY_KEYS_MIN_VERSION else [request.key]


def _coordinator(context: BrokerRequestContext, view: MetadataView, kind: _Kind, key: str) -> Coordinator:
    if not context.allowed(AclOperation.DESCRIBE, kind.resource, key):
        return _nobody(key, kind.denied)
    topic = view.image.topic(kind.topic)
    if topic is None:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions[partition_for(key, len(topic.partitions))]
    endpoint = view.endpoint(partition.leader)
    if endpoint is None:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=partition.leader, host=endpoint.host, port=endpoint.port, error_message=None)


def _share(context: BrokerRequestContext, key: str) -> Coordinator:
    if not context.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, key):
        return _nobody(key, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _nobody(key: str, error: ErrorCode, message: str | None = None) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=-1, error_code=error, error_message=message)


def _response(context: BrokerRequestContext, found: list[Coordinator]) -> FindCoordinatorResponse:
    if context.api_version >= MANY_KEYS_MIN_VERSION:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def refuse(
    context: BrokerRequestContext, request: FindCoordinatorRequest, error: ErrorCode, message: str | None
) -> FindCoordinatorResponse:
    return _response(context, [_nobody(key, error, message) for key in _keys(context, request)])


API: Final = Api(
    key=10,
    min_version=0,
    max_version=6,
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE on the transactional id or the group",
    gaps=("share groups have no coordinator",),
)
