"""ListConfigResources: list the names of resources that can have a configuration (KIP-1142).

Behavior:
* The response has all topics, all active brokers, and the groups with a configuration, filtered by resource type.
  Client metrics are not supported, so their list is empty.

Errors:
* CLUSTER_AUTHORIZATION_FAILED, or UNSUPPORTED_VERSION for an unknown resource type.

Version notes:
* v0 lists client metrics only. v1 has the filter by resource type.
"""

from collections.abc import Sequence
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.slices import respond_in_parts
from odradek.broker.requests.splitting import ELEMENTS_PER_PART, Splitting
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    MetadataImage,
)
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

RESOURCE_TYPES_MIN_VERSION: Final = 1
RESOURCE_TYPES: Final = (
    RESOURCE_GROUP,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
)


PARTS: Final = Splitting((), ("config_resources",))


def handle(
    context: BrokerRequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse | Ordered[ListConfigResourcesResponse]:
    if not context.allowed_on_cluster(AclOperation.DESCRIBE_CONFIGS):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    supported = RESOURCE_TYPES if context.api_version >= RESOURCE_TYPES_MIN_VERSION else (RESOURCE_CLIENT_METRICS,)
    if any(kind not in supported for kind in request.resource_types):
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION)
    requested = [kind for kind in supported if not request.resource_types or kind in request.resource_types]
    image = context.node.metadata.image
    listener = context.session.listener.name
    resources = [(name, kind) for kind in requested for name in _names(image, kind, listener)]
    if len(resources) <= ELEMENTS_PER_PART:
        return _response(resources)
    return Ordered(respond_in_parts(context, PARTS, ListConfigResourcesResponse, resources, _response))


def _response(resources: Sequence[tuple[str, int]]) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(config_resources=[ConfigResource(name, kind) for name, kind in resources])


def _names(image: MetadataImage, kind: int, listener: str) -> list[str]:
    if kind == RESOURCE_TOPIC:
        return list(image.topics)
    if kind == RESOURCE_GROUP:
        return [name for resource, name in image.configs if resource == RESOURCE_GROUP]
    if kind == RESOURCE_CLIENT_METRICS:
        return []
    return [
        str(broker.broker_id) for broker in image.brokers.values() if not broker.fenced and broker.endpoint(listener)
    ]


def refuse(
    context: BrokerRequestContext, request: ListConfigResourcesRequest, error: ErrorCode, message: str | None
) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=error)


API: Final = Api(
    key=74,
    min_version=0,
    max_version=1,
    request=ListConfigResourcesRequest,
    response=ListConfigResourcesResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE_CONFIGS on the cluster",
)
