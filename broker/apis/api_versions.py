"""ApiVersions: list the APIs and versions that this broker serves, and the features of the cluster (KIP-35, KIP-511,
KIP-584).

Behavior:
* The response lists the APIs that the connection's listener serves, on a listener with SASL also before the login.
  APIs for controllers are listed only on a listener that serves controllers alone.
* The response to a request with an unknown version has the format of v0. It contains UNSUPPORTED_VERSION and the
  versions of ApiVersions, so that the client can retry with one of them (KIP-511). The response header never has tagged
  fields.
* A request with a cluster id (from v5) is for one node of one cluster. A client whose bootstrap addresses have moved to
  another cluster or node thus notices it (KIP-1242). A listener that serves controllers alone does not check this.
* Supported features are those that this node has registered. Finalized features come from the metadata image; their
  epoch is the offset of the image.

Errors:
* INVALID_REQUEST if the client's software name or version contains other characters than letters, digits, `-` and
  `.`, or if the request has a cluster id without a node id or the reverse.
* REBOOTSTRAP_REQUIRED if the request has a cluster id, and cluster id or node id are not those of this node.

Version notes:
* v3 is flexible, and has the client's software name and version, and features (KIP-511, KIP-584).
* v4 lists features whose lowest supported level is 0. Earlier versions omit them, since older Java clients refuse them
  (KAFKA-17011).
* v5 has the cluster id and the node id that the client wants to connect to (KIP-1242).
"""

import re
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.requests.listener import BROKER, CLIENT, CONTROLLER, LOGIN
from odradek.cluster.metadata.image import MetadataImage
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

CLIENT_SOFTWARE_MIN_VERSION: Final = 3
LEVEL_ZERO_MIN_VERSION: Final = 4
NODE_CHECK_MIN_VERSION: Final = 5
NO_NODE: Final = -1
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: QuorumRequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    session = context.session
    if context.api_version >= CLIENT_SOFTWARE_MIN_VERSION:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if context.api_version >= NODE_CHECK_MIN_VERSION and (request.cluster_id is None) != (
            request.node_id == NO_NODE
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    roles = session.listener.user_roles if session.node is None and LOGIN in session.roles else session.roles
    of_controllers = CONTROLLER in roles and CLIENT not in roles and BROKER not in roles
    if not of_controllers and context.api_version >= NODE_CHECK_MIN_VERSION and _is_for_another(context, request):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    image = context.node.metadata.image
    # Apache Kafka does not announce the APIs of controllers to clients. A listener with more roles can have clients.
    announced_roles = roles if of_controllers else [role for role in roles if role != CONTROLLER]
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.lowest_announced, max_version=api.max_version)
            for api in context.node.apis
            if any(role in announced_roles for role in api.listeners)
        ],
        supported_features=_supported(image, context.node.node_id, context.api_version),
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(image.features.items())
        ],
    )


def _is_for_another(context: QuorumRequestContext, request: ApiVersionsRequest) -> bool:
    """Return True if the request names another cluster, or another node. Without a cluster id, it names none."""
    if request.cluster_id is None:
        return False
    return request.cluster_id != context.node.cluster_id or request.node_id != context.node.node_id


def _supported(image: MetadataImage, node_id: int, version: int) -> list[SupportedFeatureKey]:
    node = image.brokers.get(node_id) or image.controllers.get(node_id)
    if node is None:
        return []
    return [
        SupportedFeatureKey(name=name, min_version=levels.min, max_version=levels.max)
        for name, levels in sorted(node.features.items())
        if levels.min > 0 or version >= LEVEL_ZERO_MIN_VERSION
    ]


def refuse(
    context: QuorumRequestContext, request: ApiVersionsRequest | None, error: ErrorCode, message: str | None
) -> ApiVersionsResponse:
    api_keys = []
    if error is ErrorCode.UNSUPPORTED_VERSION:
        api_keys.append(ApiVersion(api_key=API.key, min_version=API.min_version, max_version=API.max_version))
    return ApiVersionsResponse(error_code=error, api_keys=api_keys)


API: Final = Api(
    key=18,
    min_version=0,
    max_version=5,
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CLIENT, CONTROLLER, LOGIN),
)
