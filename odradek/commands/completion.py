"""Shell completion of names that the cluster knows: topics, groups, transactional ids, brokers, users, tokens.

Each function is the `autocompletion` of parameters. It finds the cluster as the command does, by the options before the
cursor. It returns no names after a failure, because a shell cannot show an error while a user types.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer  # noqa: TC002  # Typer evaluates the annotations

from odradek.commands import profiles
from odradek.commands.target import DIRECTORY_DEFAULT, DIRECTORY_VARIABLE, Target, find

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from odradek.client import Cluster

TIMEOUT_S = 1.0
"""Seconds until a completion ends without names. A user waits for it at the prompt."""
INTERNAL_PREFIX = "__"
"""Prefix of internal topics, which are completed only after this prefix."""


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics of the cluster."""

    async def names(cluster: Cluster) -> Iterable[str]:
        from odradek import client

        listed = await client.list_topics(cluster)
        return (row.name for row in listed if not row.internal or incomplete.startswith(INTERNAL_PREFIX))

    return of_cluster(context, names)


def groups(context: typer.Context) -> list[str]:
    """Return the ids of the groups."""

    async def names(cluster: Cluster) -> Iterable[str]:
        from odradek import client

        return (row.group for row in await client.list_groups(cluster))

    return of_cluster(context, names)


def transactional_ids(context: typer.Context) -> list[str]:
    """Return the transactional ids of all coordinators."""

    async def names(cluster: Cluster) -> Iterable[str]:
        from odradek import client

        return (row.transactional_id for row in (await client.list_transactions(cluster)).rows)

    return of_cluster(context, names)


def brokers(context: typer.Context) -> list[str]:
    """Return the node ids of the registered brokers, also of fenced ones."""

    async def names(cluster: Cluster) -> Iterable[str]:
        from odradek.client.admin.status import describe_brokers

        _, found = await describe_brokers(cluster)
        return (str(broker.node_id) for broker in found)

    return of_cluster(context, names)


def users(context: typer.Context) -> list[str]:
    """Return the users with SCRAM credentials."""

    async def names(cluster: Cluster) -> Iterable[str]:
        from odradek import client

        return dict.fromkeys(row.user for row in await client.describe_users(cluster))

    return of_cluster(context, names)


def tokens(context: typer.Context) -> list[str]:
    """Return the ids of the tokens that this client may see."""

    async def names(cluster: Cluster) -> Iterable[str]:
        from odradek import client

        return (row.token_id for row in await client.describe_tokens(cluster, None))

    return of_cluster(context, names)


def config_resources(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the type of resource that the command line has: topics, groups or brokers."""
    match str(context.params.get("kind")):
        case "topic":
            return topics(context, incomplete)
        case "group":
            return groups(context)
        case "broker":
            return brokers(context)
        case _:
            return []


def local_brokers(context: typer.Context) -> list[str]:
    """Return the node ids of the brokers of a local cluster."""
    from odradek.local.directory import ClusterDirectory, StateFileDamaged

    directory = option(context, "directory") or os.environ.get(DIRECTORY_VARIABLE) or DIRECTORY_DEFAULT
    try:
        state = ClusterDirectory(Path(directory)).read_state()
    except (OSError, StateFileDamaged):
        return []
    return [] if state is None else [str(node_id) for node_id in state.plan.node_ids]


def profile_names() -> list[str]:
    """Return the names of the stored profiles."""
    from odradek import client

    try:
        return sorted(profiles.read(os.environ).profiles)
    except client.ClientError:
        return []


def of_cluster(context: typer.Context, names: Callable[[Cluster], Awaitable[Iterable[str]]]) -> list[str]:
    """Connect to the cluster of the command line, and return the names that it knows. Return none after a failure."""
    import asyncio

    from odradek import client

    async def within_time(bootstrap: str, config: Path | None) -> list[str]:
        security = client.read_security(config, lambda _: None)
        settings = client.Settings(client_id="odradek-completion", connect_timeout_s=TIMEOUT_S, security=security)
        async with asyncio.timeout(TIMEOUT_S), client.Cluster(bootstrap, settings) as cluster:
            return list(await names(cluster))

    try:
        found = find(target_of(context), os.environ)
        return asyncio.run(within_time(found.bootstrap, found.command_config))
    except (client.ClientError, OSError, TimeoutError, ValueError):
        return []


def target_of(context: typer.Context) -> Target:
    """Return the options before the cursor that find a cluster."""
    directory, config = option(context, "directory"), option(context, "command_config")
    return Target(
        None if directory is None else Path(directory),
        option(context, "bootstrap_server") or option(context, "bootstrap"),
        None if config is None else Path(config),
    )


def option(context: Any, name: str) -> Any:
    """Return the value of an option of a command or of the command above it. None: it is not given."""
    while context is not None:
        if (value := context.params.get(name)) is not None:
            return value
        context = context.parent
    return None
