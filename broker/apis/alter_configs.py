"""AlterConfigs: replace the whole configuration of resources (KIP-133).

Behavior:
* The configuration of a resource consists of exactly the given entries afterwards. All other entries return to their
  defaults. Clients since Kafka 2.3 send IncrementalAlterConfigs instead.
* Each resource has its own result. Errors are those of IncrementalAlterConfigs.

Version notes:
* v2 is flexible.
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.apis.configs_of_listeners import check_certificates
from odradek.broker.config.requests import PARTS, alter
from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Remainder, Routing
from odradek.cluster.controller.messages.settings import ConfigChange, ConfigOperation
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(context: QuorumRequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    results = await alter(context, context.quorum.controller, request, _change)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(result.error, result.message, result.kind, result.name) for result in results
        ]
    )


def _change(resource: AlterConfigsResource) -> ConfigChange:
    changes = tuple((entry.name, ConfigOperation.SET, entry.value) for entry in resource.configs)
    return ConfigChange(resource.resource_type, resource.resource_name, changes, replaces=True)


def check(context: QuorumRequestContext, request: AlterConfigsRequest) -> Awaitable[Remainder | None] | None:
    return check_certificates(context, request, _change, AlterConfigsResourceResponse)


def refuse(
    context: QuorumRequestContext, request: AlterConfigsRequest, error: ErrorCode, message: str | None
) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(error, message, resource.resource_type, resource.resource_name)
            for resource in request.resources
        ]
    )


API: Final = Api(
    key=33,
    min_version=0,
    max_version=2,
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    check=check,
    splitting=lambda _: PARTS,
    elements=lambda request: len(request.resources),
    acl="ALTER_CONFIGS on the topic or the group, or on the cluster for brokers",
    gaps=("client metrics and loggers of brokers have no configuration",),
)
