"""SCRAM credentials of users: list, set and remove them (KIP-554)."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from odradek.client.errors import InvalidArgument, check
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from odradek.protocol.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BITS,
    SCRAM_BY_CODE,
    SCRAM_MECHANISMS,
    ScramMechanism,
    salt_text,
)

if TYPE_CHECKING:
    from odradek.client.network.cluster import Cluster

__all__ = ["UserCredential", "describe_users", "remove_user", "set_user"]


@dataclass(frozen=True, slots=True)
class UserCredential:
    """SCRAM credential of a user: the name of its mechanism, and its iterations."""

    user: str
    mechanism: str
    iterations: int


async def describe_users(cluster: Cluster) -> list[UserCredential]:
    """Return the SCRAM credentials of all users, sorted by user and mechanism. Raise Refused."""
    response = await cluster.request_any(DescribeUserScramCredentialsRequest())
    check(response.error_code, "the users were not listed", response.error_message)
    credentials = [
        UserCredential(result.user, SCRAM_BY_CODE[info.mechanism].name, info.iterations)
        for result in response.results
        for info in result.credential_infos
        if info.mechanism in SCRAM_BY_CODE
    ]
    return sorted(credentials, key=lambda credential: (credential.user, credential.mechanism))


async def set_user(
    cluster: Cluster, user: str, password: str, mechanism: str, *, iterations: int = ITERATIONS_MIN
) -> None:
    """Set the password of a user for a mechanism. The cluster does not receive the password. Raise Refused."""
    scram = _mechanism(mechanism)
    if not password:
        raise InvalidArgument("the password is empty")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise InvalidArgument(f"iterations {iterations}: expected {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    salt = salt_text(secrets.randbits(SALT_BITS)).encode()
    # It takes milliseconds, so it runs beside the event loop.
    salted = await asyncio.to_thread(partial(scram.salted, password.encode(), salt, iterations))
    new = ScramCredentialUpsertion(user, scram.code, iterations, salt, salted)
    await _alter(cluster, AlterUserScramCredentialsRequest(upsertions=[new]))


async def remove_user(cluster: Cluster, user: str, mechanism: str | None = None) -> list[str]:
    """Remove the credential of a user for a mechanism, or for all. Return the mechanisms. Raise Refused."""
    names = [_mechanism(mechanism).name] if mechanism is not None else []
    if mechanism is None:
        names = [credential.mechanism for credential in await describe_users(cluster) if credential.user == user]
        if not names:
            raise InvalidArgument(f"user {user}: it has no SCRAM credential")
    for name in names:  # a request can change one credential of a user
        deletion = ScramCredentialDeletion(user, SCRAM_MECHANISMS[name].code)
        await _alter(cluster, AlterUserScramCredentialsRequest(deletions=[deletion]))
    return names


async def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    response = await cluster.request_any(request)
    for result in response.results:
        check(result.error_code, f"user {result.user}", result.error_message)


def _mechanism(name: str) -> ScramMechanism:
    mechanism = SCRAM_MECHANISMS.get(name.upper())
    if mechanism is None:
        raise InvalidArgument(f"mechanism {name}: unknown; expected {', '.join(SCRAM_MECHANISMS)}")
    return mechanism
