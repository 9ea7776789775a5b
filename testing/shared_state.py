"""State of a cluster that a test can change, beside topics and groups: read it first, and restore it after each test.

`changes_between` is pure. The other functions are client operations.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from odradek import client
from odradek.client.admin.configs import ConfigKind, ConfigOperation
from odradek.client.admin.transactions import EXPIRABLE_STATES
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_config_resources import ListConfigResourcesRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from odradek.client.admin.acls import Acl

T = TypeVar("T")
ALL_BROKERS = ""
"""Name of the resource with the dynamic configuration of all brokers."""
DYNAMIC = ("broker, dynamic", "all brokers, dynamic")
"""Sources of dynamic values of brokers."""
GROUP = 32
"""Number of Kafka's ConfigResource.Type GROUP."""
DISABLED = (
    ErrorCode.SECURITY_DISABLED,
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
)
"""Errors of a cluster that has no authorizer, or no delegation tokens."""

Resource = tuple[ConfigKind, str]
Entity = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class SharedState:
    """State that tests share.

    Attributes:
        acls: All ACLs.
        users: Iterations of SCRAM credentials by user and mechanism.
        quotas: Quotas by entity.
        configs: Dynamic properties of brokers, of all brokers, and of groups.
        tokens: Ids of delegation tokens.
    """

    acls: frozenset[Acl] = frozenset()
    users: Mapping[tuple[str, str], int] = field(default_factory=dict)
    quotas: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)
    configs: Mapping[Resource, Mapping[str, str | None]] = field(default_factory=dict)
    tokens: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Changes:
    """Changes that lead from one state to another. None removes a value."""

    deleted_acls: frozenset[Acl]
    created_acls: frozenset[Acl]
    users: Mapping[tuple[str, str], int | None]
    quotas: Mapping[Entity, Mapping[str, float | None]]
    configs: Mapping[Resource, Mapping[str, str | None]]
    expired_tokens: frozenset[str]


def changes_between(now: SharedState, wanted: SharedState) -> Changes:
    """Return the changes that lead from `now` to `wanted`."""
    return Changes(
        now.acls - wanted.acls,
        wanted.acls - now.acls,
        _changed(now.users, wanted.users),
        _nested(now.quotas, wanted.quotas),
        _nested(now.configs, wanted.configs),
        now.tokens - wanted.tokens,
    )


def _changed(now: Mapping[Any, T], wanted: Mapping[Any, T]) -> dict[Any, T | None]:
    names = dict.fromkeys([*now, *wanted])
    return {name: wanted.get(name) for name in names if now.get(name) != wanted.get(name) or name not in wanted}


def _nested(now: Mapping[Any, Mapping[str, T]], wanted: Mapping[Any, Mapping[str, T]]) -> dict[Any, Any]:
    both = {key: _changed(now.get(key, {}), wanted.get(key, {})) for key in dict.fromkeys([*now, *wanted])}
    return {key: changed for key, changed in both.items() if changed}


async def read(cluster: client.Cluster, node_ids: Sequence[int]) -> SharedState:
    """Return the state of a cluster whose brokers all run."""
    groups = await cluster.request_any(ListConfigResourcesRequest(resource_types=[GROUP]))
    resources: list[Resource] = [
        *((ConfigKind.BROKER, name) for name in (ALL_BROKERS, *map(str, node_ids))),
        *((ConfigKind.GROUP, each.resource_name) for each in groups.config_resources),
    ]
    acls, users, quotas, tokens, *configs = await asyncio.gather(
        _unless_disabled(client.describe_acls(cluster)),
        client.describe_users(cluster),
        client.describe_quotas(cluster),
        _unless_disabled(client.describe_tokens(cluster)),
        *(_dynamic(cluster, resource) for resource in resources),
    )
    return SharedState(
        frozenset(acls),
        {(each.user, each.mechanism): each.iterations for each in users},
        {tuple(sorted(each.entity.items())): each.values for each in quotas},
        {resource: values for resource, values in zip(resources, configs, strict=True) if values},
        frozenset(token.token_id for token in tokens),
    )


async def _unless_disabled(rows: Awaitable[list[Any]]) -> list[Any]:
    try:
        return await rows
    except client.Refused as error:
        if error.code not in DISABLED:
            raise
        return []


async def _dynamic(cluster: client.Cluster, resource: Resource) -> dict[str, str | None]:
    kind, name = resource
    entries = await client.describe_configs(cluster, kind, name)
    if kind is ConfigKind.GROUP:
        return {entry.name: entry.value for entry in entries if entry.source == kind.value}
    source = DYNAMIC[name == ALL_BROKERS]
    return {
        entry.name: synonym.value
        for entry in entries
        for synonym in entry.synonyms
        if synonym.source == source and synonym.name == entry.name
    }


async def restore(
    cluster: client.Cluster, node_ids: Sequence[int], wanted: SharedState, passwords: Mapping[str, str]
) -> None:
    """Restore the state `wanted`, and remove all transactional ids, whose open transactions are aborted before.

    `passwords` has those of the users in `wanted`.
    """
    changes = changes_between(await read(cluster, node_ids), wanted)
    for acl in changes.deleted_acls:
        await client.delete_acls(cluster, client.AclFilter(*acl))
    if changes.created_acls:
        await client.create_acls(cluster, sorted(changes.created_acls))
    for (user, mechanism), iterations in changes.users.items():
        if iterations is None:
            await client.remove_user(cluster, user, mechanism)
        else:
            await client.set_user(cluster, user, passwords[user], mechanism, iterations=iterations)
    for entity, quotas in changes.quotas.items():
        await client.alter_quotas(cluster, dict(entity), quotas)
    for (kind, name), values in changes.configs.items():
        await client.alter_configs(cluster, kind, name, [_config_change(*each) for each in values.items()])
    for token in changes.expired_tokens:
        try:
            await client.expire_token(cluster, token)
        except client.Refused as error:
            if error.code != ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH:  # only its owner can remove it
                raise
    await _forget_transactional_ids(cluster)


def _config_change(name: str, value: str | None) -> client.ConfigChange:
    return client.ConfigChange(ConfigOperation.DELETE if value is None else ConfigOperation.SET, name, value)


async def _forget_transactional_ids(cluster: client.Cluster) -> None:
    listed = (await client.list_transactions(cluster)).rows
    is_open = [row.transactional_id for row in listed if row.state not in EXPIRABLE_STATES]
    for transactional_id in is_open:
        with suppress(client.NotFound):
            await client.fence_producer(cluster, transactional_id)
    if is_open:
        listed = (await client.list_transactions(cluster)).rows
    await client.expire_transactional_ids(cluster, listed)
