"""AlterConfigs: v0-v2 (KIP-133)

Behavior:
* As IncrementalAlterConfigs, but what is named is all that is set afterwards: everything else goes back to its default. Old tools
  use it.

Version notes: the body is the same in all; v2 is flexible.
"""

from typing import Final

from odradek.broker.config.requests import alter
from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.cluster.controller.messages.settings import ConfigChange, ConfigOperation
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(context: QuorumRequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    done = await alter(
        context, context.quorum.controller, request.resources, _change, validate_only=request.validate_only
    )
    return AlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(each.error, each.message, each.kind, each.name) for each in done]
    )


def _change(resource: AlterConfigsResource) -> ConfigChange:
    changes = tuple((each.name, ConfigOperation.SET, each.value) for each in resource.configs)
    return ConfigChange(resource.resource_type, resource.resource_name, changes, replaces=True)


def refuse(
    context: QuorumRequestContext, request: AlterConfigsRequest, error: ErrorCode, message: str | None
) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(error, message, each.resource_type, each.resource_name)
            for each in request.resources
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
    acl="ALTER_CONFIGS on the topic or the group, or on the cluster for brokers",
    gaps=("client metrics and loggers are not resources here",),
)
