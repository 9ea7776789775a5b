"""IncrementalAlterConfigs: v0-v1

Behavior:
* Settings of topics, of one broker or of all brokers (an empty name) are set, removed, or, where they are lists, added to and
  taken from (KIP-339). A resource that is refused does not keep the others from being changed.
* Of brokers, what a broker reads while it runs can be changed: INVALID_REQUEST for what it reads at its start.
* `min.insync.replicas` is one for all brokers while eligible leader replicas are on (KIP-966).

Version notes: the body is the same in both; v1 is flexible.
"""

from typing import Final

from broker.api import Api, RequestContext
from broker.ports import AclOperation, ResourceType
from cluster.controller.port import ConfigChange, ConfigOperation, ConfigResult
from cluster.image import RESOURCE_TOPIC
from protocol.errors import ErrorCode, Refusal
from protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    refused: dict[int, AlterConfigsResourceResponse] = {}
    wanted: list[ConfigChange] = []
    for place, resource in enumerate(request.resources):
        try:
            wanted.append(_change(context, resource))
        except Refusal as refusal:
            refused[place] = _result(resource, refusal.error, refusal.message)
    done = iter(await context.services.controller.alter_configs(wanted, validate_only=request.validate_only))
    return IncrementalAlterConfigsResponse(
        responses=[
            refused[place] if place in refused else _answer(resource, next(done))
            for place, resource in enumerate(request.resources)
        ]
    )


def _answer(resource: AlterConfigsResource, result: ConfigResult) -> AlterConfigsResourceResponse:
    return _result(resource, result.error, result.message)


def _change(context: RequestContext, resource: AlterConfigsResource) -> ConfigChange:
    kind, name = resource.resource_type, resource.resource_name
    if kind == RESOURCE_TOPIC:
        if not context.allowed(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, name):
            raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif not context.allowed_on_cluster(AclOperation.ALTER_CONFIGS):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    changes = []
    for each in resource.configs:
        if each.config_operation not in set(ConfigOperation):
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown config operation {each.config_operation}")
        changes.append((each.name, ConfigOperation(each.config_operation), each.value))
    return ConfigChange(kind, name, tuple(changes))


def _result(resource: AlterConfigsResource, error: ErrorCode, message: str | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def refuse(
    context: RequestContext, request: IncrementalAlterConfigsRequest, error: ErrorCode, message: str | None
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=[_result(each, error, message) for each in request.resources])


API: Final = Api(
    key=44,
    min_version=0,
    max_version=1,
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
    handle=handle,
    refuse=refuse,
    forward=True,
    acl="ALTER_CONFIGS on the topic, or on the cluster for brokers",
    gaps=("client metrics, groups and loggers are not resources here",),
)
