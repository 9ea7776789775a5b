"""IncrementalAlterConfigs: v0-v1

Behavior:
* Settings of topics, of groups, of one broker or of all brokers (an empty name) are set, removed, or, where they are
  lists, added to and taken from (KIP-339). A resource that is refused does not keep the others from being changed.
* Of brokers, what a broker reads while it runs can be changed: INVALID_REQUEST for what it reads at its start.
* Loggers of brokers and metrics of clients have no settings here: INVALID_REQUEST, saying so.
* `min.insync.replicas` is one for all brokers while eligible leader replicas are on (KIP-966).

Version notes: the body is the same in both; v1 is flexible.
"""

from typing import Final

from odradek.broker.config.requests import alter
from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.cluster.controller.messages.settings import ConfigChange, ConfigOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    context: QuorumRequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    done = await alter(
        context, context.quorum.controller, request.resources, _change, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(each.error, each.message, each.kind, each.name) for each in done]
    )


def _change(resource: AlterConfigsResource) -> ConfigChange:
    changes = []
    for each in resource.configs:
        if each.config_operation not in set(ConfigOperation):
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown operations type {each.config_operation}")
        changes.append((each.name, ConfigOperation(each.config_operation), each.value))
    return ConfigChange(resource.resource_type, resource.resource_name, tuple(changes))


def refuse(
    context: QuorumRequestContext, request: IncrementalAlterConfigsRequest, error: ErrorCode, message: str | None
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(error, message, each.resource_type, each.resource_name)
            for each in request.resources
        ]
    )


API: Final = Api(
    key=44,
    min_version=0,
    max_version=1,
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    acl="ALTER_CONFIGS on the topic or the group, or on the cluster for brokers",
    gaps=("client metrics and loggers are not resources here",),
)
