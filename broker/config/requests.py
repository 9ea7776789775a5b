"""What AlterConfigs and IncrementalAlterConfigs have in common: who may change what, and the way to the controller."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from odradek.broker.requests.context import RequestContext
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.controller.messages.settings import ConfigChange, ConfigResult
from odradek.cluster.controller.service import ControllerService
from odradek.cluster.metadata.image import (
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from odradek.protocol.errors import ErrorCode, Refusal


class Resource(Protocol):
    """Of either request."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)

WITHOUT_SETTINGS: Final = {
    RESOURCE_BROKER_LOGGER: "Single loggers have no levels here; odradek.log.level is that of a broker.",
    RESOURCE_CLIENT_METRICS: "There are no settings of client metrics: clients are not asked for metrics here.",
}
"""Kinds of Kafka's that have none in this broker, and why."""


def check_kind(kind: int) -> None:
    """Raises Refusal for kinds of resources that have settings in Kafka alone."""
    why = WITHOUT_SETTINGS.get(kind)
    if why is not None:
        raise Refusal(ErrorCode.INVALID_REQUEST, why)


def check_right(context: RequestContext, operation: AclOperation, kind: int, name: str) -> None:
    """Raises Refusal unless the session may do `operation` on the settings of that resource."""
    if kind == RESOURCE_TOPIC:
        if not context.allowed(operation, ResourceType.TOPIC, name):
            raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif kind == RESOURCE_GROUP:
        if not context.allowed(operation, ResourceType.GROUP, name):
            raise Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif not context.allowed_on_cluster(operation):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def alter(
    context: RequestContext,
    controller: ControllerService,
    resources: Sequence[R],
    change: Callable[[R], ConfigChange],
    *,
    validate_only: bool,
) -> list[ConfigResult]:
    """Change the settings of resources; return one result per resource, in order.

    `change` may raise Refusal for a resource. The other resources are changed nevertheless.
    """
    refused: dict[int, ConfigResult] = {}
    wanted: list[ConfigChange] = []
    for place, resource in enumerate(resources):
        kind, name = resource.resource_type, resource.resource_name
        try:
            check_right(context, AclOperation.ALTER_CONFIGS, kind, name)
            check_kind(kind)
            wanted.append(change(resource))
        except Refusal as refusal:
            refused[place] = ConfigResult(kind, name, refusal.error, refusal.message)
    done = iter(await controller.alter_configs(wanted, validate_only=validate_only))
    return [refused[place] if place in refused else next(done) for place in range(len(resources))]
