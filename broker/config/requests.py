"""Authorization and execution of AlterConfigs and IncrementalAlterConfigs."""

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.slices import visit_parts
from odradek.broker.requests.splitting import Splitting
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
    """A resource in AlterConfigs or IncrementalAlterConfigs."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)


class Request(Protocol[R]):
    """An AlterConfigs or IncrementalAlterConfigs request."""

    resources: list[R]
    validate_only: bool


PARTS: Final = Splitting(("resources",), ("responses",))

NOT_CONFIGURABLE: Final = {
    RESOURCE_BROKER_LOGGER: "This broker has one log level for all loggers; set it with odradek.log.level.",
    RESOURCE_CLIENT_METRICS: "This broker collects no client metrics (KIP-714), so they have no configuration.",
}
"""Resource types of Kafka that have no configuration in this broker, with the error message."""


def check_kind(kind: int) -> None:
    """Raise Refusal(INVALID_REQUEST) for resource types that are not configurable in this broker."""
    message = NOT_CONFIGURABLE.get(kind)
    if message is not None:
        raise Refusal(ErrorCode.INVALID_REQUEST, message)


def check_authorized(context: RequestContext, operation: AclOperation, kind: int, name: str) -> None:
    """Raise Refusal if the principal lacks `operation` on the configurations of the resource.

    The error is TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED.
    """
    if kind == RESOURCE_TOPIC:
        if not context.allowed(operation, ResourceType.TOPIC, name):
            raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif kind == RESOURCE_GROUP:
        if not context.allowed(operation, ResourceType.GROUP, name):
            raise Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif not context.allowed_on_cluster(operation, about=(f"broker {name}",)):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def alter(
    context: RequestContext,
    controller: ControllerService,
    request: Request[R],
    change: Callable[[R], ConfigChange],
) -> list[ConfigResult]:
    """Change the configurations of resources; return one result per resource, in order.

    `change` may raise Refusal for a resource. The other resources are changed nevertheless.
    """
    refused: dict[int, ConfigResult] = {}
    changes: list[ConfigChange] = []

    def accept(part: Request[R]) -> None:
        for resource in part.resources:
            kind, name = resource.resource_type, resource.resource_name
            try:
                check_authorized(context, AclOperation.ALTER_CONFIGS, kind, name)
                check_kind(kind)
                changes.append(change(resource))
            except Refusal as refusal:
                refused[len(changes) + len(refused)] = ConfigResult(kind, name, refusal.error, refusal.message)

    await visit_parts(PARTS, request, accept)
    results = iter(await controller.alter_configs(changes, validate_only=request.validate_only))
    return [refused[position] if position in refused else next(results) for position in range(len(request.resources))]
