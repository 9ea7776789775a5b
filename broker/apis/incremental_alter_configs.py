"""IncrementalAlterConfigs: change single entries of the configuration of topics, groups and brokers (KIP-339).

Behavior:
* Operations: set, delete, append to a list, subtract from a list. A broker is named by its id; an empty name stands for
  all brokers.
* Each resource has its own result. The changes of one resource are made all or none.
* While eligible leader replicas are enabled, `min.insync.replicas` cannot be set for a single broker (KIP-966).

Errors:
* Per resource: TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED or CLUSTER_AUTHORIZATION_FAILED;
  UNKNOWN_TOPIC_OR_PARTITION; INVALID_CONFIG; INVALID_REQUEST for an unknown operation, for a broker property that is
  read only at start, for loggers of brokers and for client metrics.

Version notes:
* v1 is flexible.
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.apis.configs_of_listeners import check_certificates
from odradek.broker.config.requests import PARTS, alter
from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Remainder, Routing
from odradek.broker.requests.listener import CLIENT, CONTROLLER
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
    results = await alter(context, context.quorum.controller, request, _change)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(result.error, result.message, result.kind, result.name) for result in results
        ]
    )


def _change(resource: AlterConfigsResource) -> ConfigChange:
    changes = []
    for entry in resource.configs:
        if entry.config_operation not in set(ConfigOperation):
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown operations type {entry.config_operation}")
        changes.append((entry.name, ConfigOperation(entry.config_operation), entry.value))
    return ConfigChange(resource.resource_type, resource.resource_name, tuple(changes))


def check(context: QuorumRequestContext, request: IncrementalAlterConfigsRequest) -> Awaitable[Remainder | None] | None:
    return check_certificates(context, request, _change, AlterConfigsResourceResponse)


def refuse(
    context: QuorumRequestContext, request: IncrementalAlterConfigsRequest, error: ErrorCode, message: str | None
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(error, message, resource.resource_type, resource.resource_name)
            for resource in request.resources
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
    listeners=(CLIENT, CONTROLLER),
    routing=Routing.CONTROLLER,
    check=check,
    splitting=lambda _: PARTS,
    elements=lambda request: len(request.resources),
    acl="ALTER_CONFIGS on the topic or the group, or on the cluster for brokers",
    gaps=("client metrics and loggers of brokers have no configuration",),
)
