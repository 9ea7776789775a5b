"""Wait for a cluster to be complete: brokers registered, leaders elected, replicas in sync."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.client.admin.status import active_controller
from odradek.client.errors import ClientError
from odradek.client.network.cluster import Cluster
from odradek.protocol.special_values import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from odradek.client.network.metadata import Metadata
    from odradek.client.network.settings import Settings

READY_TIMEOUT_S: Final = 120.0
"""Maximum wait for a cluster to become ready, in seconds. A follower may have to copy gigabytes."""
READY_INTERVAL_S: Final = 0.05
"""Seconds between two checks. No request of Kafka's protocol waits for a replica to be in sync."""
SHOWN_MAX: Final = 5
"""Maximum missing items in the error message."""


async def wait_until_serving(bootstrap: str, brokers: int, settings: Settings | None = None) -> None:
    """Wait until `brokers` brokers are unfenced, and each partition has a leader and a majority of replicas in sync.

    With the usual min.insync.replicas, all partitions then accept records with acks=all. Raise ClientError if it takes
    longer than READY_TIMEOUT_S.
    """
    await _wait(bootstrap, brokers, _majority, settings)


async def wait_until_all_serve(endpoints: Sequence[str], settings: Settings | None = None) -> None:
    """Wait like `wait_until_serving` in the view of each broker, until all brokers return the same metadata.

    `endpoints` has the address of each broker. A broker that was isolated returns its old metadata until it receives
    the new one. There, no broker is fenced.
    """

    async def missing() -> list[str]:
        views: list[Metadata] = []
        for endpoint in endpoints:
            async with Cluster(endpoint, settings) as cluster:
                views.append(await cluster.fetch_metadata(None))
            if items := missing_items(views[-1], len(endpoints), _majority):
                return items
            if views[-1] != views[0]:
                return [f"{endpoints[0]} and {endpoint} have different metadata"]
        return []

    await _until_none(missing)


async def wait_until_in_sync(bootstrap: str, brokers: int, settings: Settings | None = None) -> int | None:
    """Wait until `brokers` brokers are unfenced and each partition has a leader and all replicas in sync.

    Return the node id of the active controller, None if it is unknown. Raise ClientError if it takes longer than
    READY_TIMEOUT_S.
    """
    return await _wait(bootstrap, brokers, lambda replicas: replicas, settings)


async def _wait(bootstrap: str, brokers: int, required: Callable[[int], int], settings: Settings | None) -> int | None:
    """Check until nothing is missing.

    Each check bootstraps again, so that the first address is preferred once it responds.
    """
    controller: int | None = None

    async def missing() -> list[str]:
        nonlocal controller
        async with Cluster(bootstrap, settings) as cluster:
            items = missing_items(await cluster.fetch_metadata(None), brokers, required)
            if not items:
                controller = await active_controller(cluster)
            return items

    await _until_none(missing)
    return controller


async def _until_none(find_missing: Callable[[], Awaitable[list[str]]]) -> None:
    """Call `find_missing` until it returns nothing. Raise ClientError if it takes longer than READY_TIMEOUT_S."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_TIMEOUT_S
    while True:
        try:
            missing = await find_missing()
            if not missing:
                return
        except ClientError as error:
            missing = [str(error)]
        if loop.time() > deadline:
            raise ClientError(f"not in sync within {READY_TIMEOUT_S:.0f} s: {', '.join(missing[:SHOWN_MAX])}")
        await asyncio.sleep(READY_INTERVAL_S)


def _majority(replicas: int) -> int:
    return (replicas + 1) // 2


def missing_items(metadata: Metadata, brokers: int, required: Callable[[int], int]) -> list[str]:
    """Describe what is missing for `brokers` brokers and, of n replicas of a partition, `required(n)` in sync."""
    missing: list[str] = []
    if len(metadata.brokers) < brokers:
        missing.append(f"only {len(metadata.brokers)} of {brokers} brokers serve ({_listed(metadata.brokers)})")
    for topic in metadata.topics.values():
        for partition in topic.partitions.values():
            if len(partition.isr) < required(len(partition.replicas)) or partition.leader == NO_LEADER:
                lagging = [node_id for node_id in partition.replicas if node_id not in partition.isr]
                reason = f"lacks {_listed(lagging)}" if lagging else "has no leader"
                missing.append(f"{topic.name}-{partition.index} {reason}")
    return missing


def _listed(node_ids: Iterable[int]) -> str:
    return ", ".join(str(node_id) for node_id in node_ids) or "none"
