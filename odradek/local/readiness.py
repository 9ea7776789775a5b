"""Blocking calls that wait for a cluster that was started, for callers with and without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from odradek import client
from odradek.local.processes import BrokerFailed

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def await_serving(bootstrap: str, brokers: int) -> None:
    """Wait until each partition has a leader and at least min.insync.replicas in-sync replicas.

    Raise BrokerFailed after 120 s.
    """
    _run(client.wait_until_serving(bootstrap, brokers))


def await_in_sync(bootstrap: str, brokers: int) -> int | None:
    """Wait until every replica is in sync.

    Return the node id of the active controller. Raise BrokerFailed after 120 s.
    """
    return _run(client.wait_until_in_sync(bootstrap, brokers))


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new event loop, in a new thread if this thread runs an event loop already."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(lambda: _run(coroutine)).result()
    try:
        return asyncio.run(coroutine)
    except client.ClientError as error:
        raise BrokerFailed(str(error)) from error
