"""FindCoordinator: find the coordinator of groups and transactional ids (KIP-98, KIP-699).

Behavior:
* The coordinator of a transactional id is the leader of its partition of `__transaction_state`. The coordinator of a
  group is the leader of its partition of `__consumer_offsets`.
* The first request for a coordinator that the client may describe creates the topic, and its response waits for the
  topic. Kafka instead responds with COORDINATOR_NOT_AVAILABLE, and the client retries.
* While the failure of a broker is suspected but not decided, and it leads partitions of coordinators, the response
  waits for their elections, or for the decision, at most 1 s.

Errors:
* INVALID_REQUEST for an unknown key type.
* Per key: GROUP_AUTHORIZATION_FAILED or TRANSACTIONAL_ID_AUTHORIZATION_FAILED; COORDINATOR_NOT_AVAILABLE if the topic
  cannot be created (fewer brokers than the configured replication factor), or if its partition has no leader on this
  listener.

Version notes:
* v1 has transactional ids. v3 is flexible. v4 has several keys (KIP-699). v5 knows TRANSACTION_ABORTABLE (KIP-890).
* v6 has share groups (KIP-932), which always have the error COORDINATOR_NOT_AVAILABLE.
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.requests.splitting import Splitting
from odradek.broker.topics.metadata_view import MetadataView
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.hashing import partition_for
from odradek.protocol.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

KEY_TYPE_MIN_VERSION: Final = 1
MANY_KEYS_MIN_VERSION: Final = 4
SHARE_GROUPS_MIN_VERSION: Final = 6
GROUP, TRANSACTION, SHARE = 0, 1, 2
NO_COORDINATOR: Final = -1


@frozen_dataclass(frozen=True, slots=True)
class _Kind:
    """Kind of key: the topic of its coordinators, its resource type, and the error of a client without permission."""

    topic: str
    resource: ResourceType
    denied: ErrorCode


BY_KEY: Final = Splitting(("coordinator_keys",), ("coordinators",), hashed=str)
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
    supported = key_type in {GROUP, TRANSACTION} or (
        key_type == SHARE and context.api_version >= SHARE_GROUPS_MIN_VERSION
    )
    if not supported:
        return refuse(context, request, ErrorCode.INVALID_REQUEST, f"Unknown key type {key_type}")
    kind = _KINDS.get(key_type)
    if kind is not None and context.broker.suspected_leaders.any([kind.topic]):
        return _when_decided(context, request, key_type, kind.topic)
    return _now(context, request, key_type)


async def _when_decided(
    context: BrokerRequestContext, request: FindCoordinatorRequest, key_type: int, topic: str
) -> FindCoordinatorResponse:
    """Wait until no suspected broker leads a partition of `topic`, then find the coordinator."""
    await context.broker.suspected_leaders.decided([topic])
    response = _now(context, request, key_type)
    return response if isinstance(response, FindCoordinatorResponse) else await response


def _now(
    context: BrokerRequestContext, request: FindCoordinatorRequest, key_type: int
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    kind = _KINDS.get(key_type)
    if kind is not None and context.node.metadata.image.topic(kind.topic) is None and _may_find(context, request, kind):
        return _when_created(context, request, kind)
    return _respond(context, request, kind)


def _may_find(context: BrokerRequestContext, request: FindCoordinatorRequest, kind: _Kind) -> bool:
    """Return True if the client may describe one of the keys. Other clients cannot make a broker create the topic."""
    return bool(context.permitted(AclOperation.DESCRIBE, kind.resource, _keys(context, request)))


async def _when_created(
    context: BrokerRequestContext, request: FindCoordinatorRequest, kind: _Kind
) -> FindCoordinatorResponse:
    # If the creation fails, the topic is still missing, and the response is COORDINATOR_NOT_AVAILABLE.
    await context.broker.auto_topic_creation.create([kind.topic])
    return _respond(context, request, kind)


def _respond(
    context: BrokerRequestContext, request: FindCoordinatorRequest, kind: _Kind | None
) -> FindCoordinatorResponse:
    keys = _keys(context, request)
    if kind is None:
        return _response(context, [_share_group(context, key) for key in keys])
    view = MetadataView(context.node.metadata.image, context.session.listener.name)
    return _response(context, [_coordinator(context, view, kind, key) for key in keys])


def _keys(context: BrokerRequestContext, request: FindCoordinatorRequest) -> list[str]:
    return request.coordinator_keys if context.api_version >= MANY_KEYS_MIN_VERSION else [request.key]


def _coordinator(context: BrokerRequestContext, view: MetadataView, kind: _Kind, key: str) -> Coordinator:
    if not context.allowed(AclOperation.DESCRIBE, kind.resource, key):
        return _failed(key, kind.denied)
    topic = view.image.topic(kind.topic)
    if topic is None:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions[partition_for(key, len(topic.partitions))]
    endpoint = view.endpoint(partition.leader)
    if endpoint is None:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=partition.leader, host=endpoint.host, port=endpoint.port, error_message=None)


def _share_group(context: BrokerRequestContext, key: str) -> Coordinator:
    if not context.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, key):
        return _failed(key, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _failed(key: str, error: ErrorCode, message: str | None = None) -> Coordinator:
    return Coordinator(key=key, node_id=NO_COORDINATOR, host="", port=-1, error_code=error, error_message=message)


def _response(context: BrokerRequestContext, coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    if context.api_version >= MANY_KEYS_MIN_VERSION:
        return FindCoordinatorResponse(coordinators=coordinators)
    coordinator = coordinators[0]
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def refuse(
    context: BrokerRequestContext, request: FindCoordinatorRequest, error: ErrorCode, message: str | None
) -> FindCoordinatorResponse:
    return _response(context, [_failed(key, error, message) for key in _keys(context, request)])


def _splitting(version: int) -> Splitting | None:
    return BY_KEY if version >= MANY_KEYS_MIN_VERSION else None


API: Final = Api(
    key=10,
    min_version=0,
    max_version=6,
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
    handle=handle,
    refuse=refuse,
    splitting=_splitting,
    acl="DESCRIBE on the transactional id or the group",
    gaps=("share groups have no coordinator",),
)
