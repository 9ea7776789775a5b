"""Check of new certificates of this broker's listeners, in AlterConfigs and IncrementalAlterConfigs.

Only the broker itself can read its files. So it checks the change before it forwards the request to the controller.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from odradek.broker.config.properties import dynamic_of_listener, of_all_listeners
from odradek.broker.config.property import ConfigError
from odradek.broker.config.requests import Request, Resource
from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.tls.certificates import Certificates
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.settings import ConfigChange, ConfigOperation
from odradek.cluster.metadata.image import RESOURCE_BROKER
from odradek.protocol.errors import ErrorCode, Refusal

R = TypeVar("R", bound=Resource)


def check_certificates(
    context: QuorumRequestContext, request: Request[R], change: Callable[[R], ConfigChange]
) -> Awaitable[None] | None:
    """Return a check of the certificates that the request sets for this broker; None if it sets none.

    The check raises Refusal(INVALID_REQUEST). It reads no file for a client without ALTER_CONFIGS, whose request the
    controller refuses. The controller also audits the decision.
    """
    certificates, own = context.node.certificates, str(context.node.node_id)
    if certificates is None or not context.permits_on_cluster(AclOperation.ALTER_CONFIGS):
        return None
    for resource in request.resources:
        if resource.resource_type != RESOURCE_BROKER or resource.resource_name != own:
            continue
        wanted = change(resource)
        if any((dynamic_of_listener(name) or of_all_listeners(name)) is not None for name, _, _ in wanted.changes):
            texts = {} if wanted.replaces else dict(context.node.metadata.image.config(RESOURCE_BROKER, own))
            for name, operation, value in wanted.changes:
                if operation is ConfigOperation.DELETE or value is None:
                    texts.pop(name, None)
                else:
                    texts[name] = value
            return _check(certificates, texts)
    return None


async def _check(certificates: Certificates, texts: dict[str, str]) -> None:
    try:
        await certificates.validate(texts)
    except ConfigError as error:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Invalid config value for this broker: {error}") from None
