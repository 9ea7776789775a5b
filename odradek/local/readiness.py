"""Blocking calls that wait for a cluster that was started, for callers with and without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from odradek import client
from odradek.local.processes import BrokerFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from odradek.local.directory import ClusterDirectory, ClusterState

ACLS_TIMEOUT_S: Final = 30.0
"""Maximum seconds until all brokers have new ACLs. A broker applies a metadata record within milliseconds."""
ACLS_INTERVAL_S: Final = 0.02
"""Seconds between two checks. No request of Kafka's protocol waits for an ACL."""
T = TypeVar("T")


def complete_start(cluster: ClusterDirectory, state: ClusterState, node_ids: Sequence[int]) -> None:
    """Complete the start of brokers that are ready. `state` is that before their start.

    Before the first start, the users of a cluster with security have no ACLs: create them. After a restart of the whole
    cluster, partitions have no leaders yet: wait for them. Raise BrokerFailed after 120 s.
    """
    config = cluster.own_client_config(state.plan)
    security = state.plan.security
    if not state.formed and security is not None and security.kind.has_users:
        endpoints = [state.plan.endpoint(node_id) for node_id in node_ids]
        acls = [acl for user in security.users for acl in acls_of(user)]
        _run(lambda: _create_acls(endpoints, acls, _settings(config)))
    if state.formed and len(node_ids) == len(state.plan.ports):
        await_serving(state.plan.bootstrap, len(node_ids), config)


def acls_of(user: str) -> list[client.Acl]:
    """Return the ACLs of a user: all operations on topics, groups and transactional ids whose names begin with it."""
    resources = (client.ResourceType.TOPIC, client.ResourceType.GROUP, client.ResourceType.TRANSACTIONAL_ID)
    pattern, operation, permission = client.PatternType.PREFIXED, client.AclOperation.ALL, client.Permission.ALLOW
    return [client.Acl(each, f"{user}-", pattern, f"User:{user}", "*", operation, permission) for each in resources]


async def _create_acls(endpoints: Sequence[str], acls: Sequence[client.Acl], settings: client.Settings) -> None:
    """Create ACLs, and wait until each broker has them: a broker without them refuses the first requests of a user."""
    import asyncio

    async with client.Cluster(endpoints[0], settings) as cluster:
        await client.create_acls(cluster, acls)
    async with asyncio.timeout(ACLS_TIMEOUT_S):
        for endpoint in endpoints:
            async with client.Cluster(endpoint, settings) as cluster:
                while True:
                    if set(acls) <= set(await client.describe_acls(cluster)):
                        break
                    await asyncio.sleep(ACLS_INTERVAL_S)


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
    except (client.ClientError, TimeoutError) as error:
        raise BrokerFailed(
            str(error) or f"brokers have no ACLs after {ACLS_TIMEOUT_S:.0f} s; see their logs"
        ) from error
