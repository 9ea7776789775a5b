"""Waits for a cluster that was started: blocking calls, for callers without an event loop and for those that have one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from odradek import client
from odradek.local.processes import BrokerFailed

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def await_serving(bootstrap: str, brokers: int) -> None:
    """Wait until every partition has a leader and enough replicas in sync to accept records. Raise BrokerFailed after 120 s."""
    _run(client.wait_until_serving(bootstrap, brokers))


def await_in_sync(bootstrap: str, brokers: int) -> int | None:
    """Wait until every replica is in sync and return the active controller's node id. Raise BrokerFailed after 120 s."""
    return _run(client.wait_until_in_sync(bootstrap, brokers))


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop of its own, in a thread of its own if this thread runs an event loop already."""
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
