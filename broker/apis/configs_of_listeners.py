"""Check of new certificates of this broker's listeners, in AlterConfigs and IncrementalAlterConfigs.

Only the broker itself can read its files. So it checks the change before it forwards the request to the controller. As
in Kafka, an invalid change has its own result, and the other resources of the request are forwarded.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from odradek.broker.config.properties import dynamic_of_listener, of_all_listeners
from odradek.broker.config.property import ConfigError
from odradek.broker.config.requests import Request, Resource
from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Remainder
from odradek.broker.tls.certificates import Certificates
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.settings import ConfigChange
from odradek.cluster.controller.settings.operations import resulting_settings
from odradek.cluster.metadata.image import RESOURCE_BROKER
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.schema import Struct, replace_fields

R = TypeVar("R", bound=Resource)


class Response(Protocol):
    """Response of AlterConfigs or IncrementalAlterConfigs."""

    responses: list[Any]


def check_certificates(
    context: QuorumRequestContext,
    request: Request[R],
    change: Callable[[R], ConfigChange],
    result: Callable[[int, str | None, int, str], Any],
) -> Awaitable[Remainder | None] | None:
    """Return a check of the certificates that the request sets for this broker; None if it sets none.

    If they are invalid, the check returns the request without that resource, whose result it makes with `result`. It
    reads no file for a client without ALTER_CONFIGS, whose request the controller refuses. The controller also audits
    the decision.
    """
    certificates, own = context.node.certificates, str(context.node.node_id)
    if certificates is None or not context.permits_on_cluster(AclOperation.ALTER_CONFIGS):
        return None
    for position, resource in enumerate(request.resources):
        if resource.resource_type != RESOURCE_BROKER or resource.resource_name != own:
            continue
        wanted = change(resource)
        if any((dynamic_of_listener(name) or of_all_listeners(name)) is not None for name, _, _ in wanted.changes):
            present = context.node.metadata.image.config(RESOURCE_BROKER, own)
            try:
                texts = resulting_settings(context.node.topic_settings, wanted, present)
            except Refusal:
                return None  # the controller refuses the resource with the same error
            refused = partial(_remainder, request, position, result)
            return _check(certificates, texts, refused)
    return None


async def _check(
    certificates: Certificates, texts: dict[str, str], refused: Callable[[str], Remainder]
) -> Remainder | None:
    try:
        await certificates.validate(texts)
    except ConfigError as error:
        return refused(f"Invalid config value for this broker: {error}")
    return None


def _remainder(
    request: Request[R], position: int, result: Callable[[int, str | None, int, str], Any], message: str
) -> Remainder:
    assert isinstance(request, Struct)
    resource = request.resources[position]
    refused = result(ErrorCode.INVALID_REQUEST, message, resource.resource_type, resource.resource_name)

    def complete(response: Response) -> None:
        response.responses.insert(position, refused)

    resources = [*request.resources[:position], *request.resources[position + 1 :]]
    return Remainder(replace_fields(request, resources=resources), complete)
