"""ApiVersions: v0-v4

Behavior:
* Announces exactly the rows of the API table that are served on the listener of the connection.
* A version from the future is answered with a v0 body, error UNSUPPORTED_VERSION and the one row of ApiVersions itself, so
  that a client can ask again (KIP-511). The response header never has tagged fields, whatever the version.
* Supported features are those this broker registered with; finalized ones come from the metadata log, with its offset as epoch.

Version notes:
* v3: flexible, client software name and version, features (KIP-511, KIP-584)
* v4: features whose lowest level is 0 are listed (KIP-1014); before it they are left out, since old Java clients refuse them
"""

import re
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.metadata.image import MetadataImage
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE_NAMED_FROM: Final = 3
ZERO_LEVELS_FROM: Final = 4
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: BrokerRequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= SOFTWARE_NAMED_FROM:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.session.client_software_name = name
        context.session.client_software_version = version
    image = context.node.metadata.image
    roles = context.session.listener.roles
    # What only controllers ask is not for clients to know, wherever they ask.
    announced = [role for role in roles if role != CONTROLLER] or roles
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.lowest_announced, max_version=api.max_version)
            for api in context.broker.apis
            if any(role in announced for role in api.listeners)
        ],
        supported_features=_supported(image, context.node.node_id, context.api_version),
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(image.features.items())
        ],
    )


def _supported(image: MetadataImage, node_id: int, version: int) -> list[SupportedFeatureKey]:
    broker = image.brokers.get(node_id)
    if broker is None:
        return []
    return [
        SupportedFeatureKey(name=name, min_version=levels.min, max_version=levels.max)
        for name, levels in sorted(broker.features.items())
        if levels.min > 0 or version >= ZERO_LEVELS_FROM
    ]


def refuse(
    context: BrokerRequestContext, request: ApiVersionsRequest | None, error: ErrorCode, message: str | None
) -> ApiVersionsResponse:
    rows = []
    if error is ErrorCode.UNSUPPORTED_VERSION:
        rows.append(ApiVersion(api_key=API.key, min_version=API.min_version, max_version=API.max_version))
    return ApiVersionsResponse(error_code=error, api_keys=rows)


API: Final = Api(
    key=18,
    min_version=0,
    max_version=4,
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
    handle=handle,
    refuse=refuse,
)
