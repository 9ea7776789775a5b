"""Register this node as a controller with the active controller (KIP-919)."""

from asyncio import timeout
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import structlog

from odradek.cluster.controller.messages.brokers import ControllerRegistration
from odradek.cluster.lifecycle.pause import sleep
from odradek.protocol.errors import ErrorCode, Refusal

RETRIABLE: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.REQUEST_TIMED_OUT)
"""Refusals that a later request may not get."""
_logger = structlog.get_logger(__name__)


class ControllerRegistrar(Protocol):
    """The request to the active controller. It may raise Refusal, and OSError if there is no response."""

    def register_controller(self, registration: ControllerRegistration) -> Awaitable[None]: ...


async def register_controller(
    registrar: ControllerRegistrar,
    registration: ControllerRegistration,
    *,
    request_timeout_ms: int,
    retry_backoff_ms: int,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Repeat the registration until the active controller accepts or refuses it, or `stopped` returns True."""
    while not stopped():
        try:
            async with timeout(request_timeout_ms / 1_000):
                await registrar.register_controller(registration)
        except (Refusal, OSError) as error:
            if isinstance(error, Refusal) and error.error not in RETRIABLE:
                _logger.warning("controller registration failed", reason=str(error))
                return
            await sleep(retry_backoff_ms)
        else:
            return
