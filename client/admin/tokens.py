"""Delegation tokens: create, renew, expire and list them (KIP-48)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.client.errors import InvalidArgument, check
from odradek.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from odradek.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from odradek.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from odradek.protocol.sasl.delegation_token import token_password

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.client.network.cluster import Cluster

__all__ = ["Token", "create_token", "describe_tokens", "expire_token", "renew_token"]
USER: Final = "User"
_KIND: Final = "User:"
LONGEST: Final = -1
"""Period in milliseconds that stands for the longest time that the cluster permits."""
NOW: Final = -1
"""Period that stands for the immediate removal of a token."""


@dataclass(frozen=True, slots=True)
class Token:
    """A delegation token. `hmac` is its password, in base64."""

    token_id: str
    owner: str
    requester: str
    renewers: list[str]
    issued_ms: int
    expires_ms: int
    max_ms: int
    hmac: str = field(repr=False)


async def create_token(
    cluster: Cluster, *, owner: str | None = None, renewers: Sequence[str] = (), max_lifetime_ms: int = LONGEST
) -> Token:
    """Create a token and return it. `owner`: the user that logs in by it; None: this client. Raise Refused."""
    named = [CreatableRenewers(USER, renewer.removeprefix(_KIND)) for renewer in renewers]
    request = CreateDelegationTokenRequest(None, None, named, max_lifetime_ms)
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = USER, owner.removeprefix(_KIND)
    response = await cluster.request_any(request)
    check(response.error_code, "the token was not created")
    return Token(
        response.token_id,
        f"{response.principal_type}:{response.principal_name}",
        f"{response.token_requester_principal_type}:{response.token_requester_principal_name}",
        [f"{USER}:{renewer.principal_name}" for renewer in named],
        response.issue_timestamp_ms,
        response.expiry_timestamp_ms,
        response.max_timestamp_ms,
        token_password(bytes(response.hmac)),
    )


async def describe_tokens(cluster: Cluster, owners: Sequence[str] | None = None) -> list[Token]:
    """Return the tokens that this client may see, by the time of their creation. None: of all owners. Raise Refused."""
    return [token for token, _ in await _described(cluster, owners)]


async def renew_token(cluster: Cluster, token_id: str, *, period_ms: int = LONGEST) -> int:
    """Let a token expire later, after a period. Return its expiry in milliseconds. Raise InvalidArgument, Refused."""
    secret = await _secret(cluster, token_id)
    response = await cluster.request_any(RenewDelegationTokenRequest(secret, period_ms))
    check(response.error_code, f"token {token_id} was not renewed")
    return int(response.expiry_timestamp_ms)


async def expire_token(cluster: Cluster, token_id: str, *, period_ms: int = NOW) -> int:
    """Let a token expire after a period, or remove it. Return its expiry. Raise InvalidArgument, Refused."""
    secret = await _secret(cluster, token_id)
    response = await cluster.request_any(ExpireDelegationTokenRequest(secret, period_ms))
    check(response.error_code, f"token {token_id} was not changed")
    return int(response.expiry_timestamp_ms)


async def _secret(cluster: Cluster, token_id: str) -> bytes:
    for token, secret in await _described(cluster, None):
        if token.token_id == token_id:
            return secret
    raise InvalidArgument(f"token {token_id}: it does not exist, or this user may not see it")


async def _described(cluster: Cluster, owners: Sequence[str] | None) -> list[tuple[Token, bytes]]:
    named = None
    if owners is not None:
        named = [DescribeDelegationTokenOwner(USER, owner.removeprefix(_KIND)) for owner in owners]
    response = await cluster.request_any(DescribeDelegationTokenRequest(named))
    check(response.error_code, "the tokens were not listed")
    tokens = [
        (
            Token(
                one.token_id,
                f"{one.principal_type}:{one.principal_name}",
                f"{one.token_requester_principal_type}:{one.token_requester_principal_name}",
                [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in one.renewers],
                one.issue_timestamp,
                one.expiry_timestamp,
                one.max_timestamp,
                token_password(bytes(one.hmac)),
            ),
            bytes(one.hmac),
        )
        for one in response.tokens
    ]
    return sorted(tokens, key=lambda each: (each[0].issued_ms, each[0].token_id))
