"""Blocking calls that wait for a cluster that was started, for callers with and without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from odradek import client
from odradek.local.processes import BrokerFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

T = TypeVar("T")


def await_serving(bootstrap: str, brokers: int, command_config: Path | None = None) -> None:
    """Wait until each partition has a leader and at least min.insync.replicas in-sync replicas.

    `command_config` has client properties. Raise BrokerFailed after 120 s.
    """
    _run(lambda: client.wait_until_serving(bootstrap, brokers, _settings(command_config)))


def await_in_sync(bootstrap: str, brokers: int, command_config: Path | None = None) -> int | None:
    """Wait until every replica is in sync.

    `command_config` has client properties. Return the node id of the active controller. Raise BrokerFailed after 120 s.
    """
    return _run(lambda: client.wait_until_in_sync(bootstrap, brokers, _settings(command_config)))


def _settings(command_config: Path | None) -> client.Settings:
    return client.Settings(security=client.read_security(command_config, lambda _: None))


def _run(operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run an operation on a new event loop, in a new thread if this thread runs an event loop already."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(lambda: _run(operation)).result()
    try:
        return asyncio.run(operation())
    except client.ClientError as error:
        raise BrokerFailed(str(error)) from error
