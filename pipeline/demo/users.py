"""Users of a secured demo: each one has only the ACLs that its part needs."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.client import (
    Acl,
    AclFilter,
    AclOperation,
    AuthenticationFailed,
    PatternType,
    Permission,
    ResourceType,
    create_acls,
    delete_acls,
    describe_acls,
    remove_user,
    set_user,
)
from odradek.client.security.names import MECHANISM
from odradek.pipeline.flights.progress_topic import GROUP
from odradek.protocol.acls import WILDCARD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from odradek.client import Cluster
    from odradek.pipeline.cluster.access import Access

PASSWORD_BYTES: Final = 18
"""Random bytes of a generated password: 144 bits."""
APPLIED_SECONDS_MAX: Final = 30.0
"""Maximum seconds until each broker has the users and ACLs. A broker applies a metadata record within milliseconds."""
APPLIED_INTERVAL_SECONDS: Final = 0.05
"""Seconds between two checks. No request of Kafka's protocol waits for a user or an ACL."""

TOPIC, GROUP_KIND, ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
Rule = tuple[ResourceType, str, AclOperation]
"""Resource with its literal name, and an operation on it."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the resources of one run.

    Attributes:
        flights, progress, delays, copies: Topics.
        producer_id: Transactional id of the producer.
        sink_id: Transactional id of the sink of the copies, and the group of its ledger.
    """

    flights: str
    progress: str
    delays: str
    copies: str
    producer_id: str
    sink_id: str


@dataclass(frozen=True, slots=True)
class Accesses:
    """Access of each part of the demo. Without `--secure`, it is the same for all.

    Attributes:
        admin: Creates topics, users and ACLs, looks up the brokers to kill, and keeps the transitions for the audit.
        producer: Writes the flights and the progress records, and reads the latter.
        spark: The Spark job, and the driver of the copies.
        auditor: Verification of topics, and audit of all logs.
    """

    admin: Access
    producer: Access
    spark: Access
    auditor: Access

    @classmethod
    def of_one(cls, access: Access) -> Accesses:
        """Return one access for all parts."""
        return cls(access, access, access, access)

    def describe(self) -> str:
        """Return protocol, mechanism and users, for example "SASL_SSL with SCRAM-SHA-256, users admin, producer-7"."""
        users = self.users
        return self.admin.describe() + (f", users {', '.join(users)}" if users else "")

    @property
    def users(self) -> list[str]:
        """Return the names of the users, the administrator first. Empty if clients have no user name."""
        found = (each.user for each in (self.admin, self.producer, self.spark, self.auditor))
        return list(dict.fromkeys(user for user in found if user is not None))


def rules(names: Names) -> dict[str, list[Rule]]:
    """Return what each user may do: the user, and its rules. READ and WRITE also allow DESCRIBE."""
    return {
        "producer": [
            (TOPIC, names.flights, WRITE),
            (TOPIC, names.progress, WRITE),
            (TOPIC, names.progress, READ),
            (ID, names.producer_id, WRITE),
            (GROUP_KIND, GROUP, DESCRIBE),
        ],
        "spark": [
            (TOPIC, names.flights, READ),
            (TOPIC, names.delays, WRITE),
            (TOPIC, names.delays, READ),
            (TOPIC, names.copies, WRITE),
            (TOPIC, names.copies, READ),
            (ID, names.sink_id, WRITE),
            (GROUP_KIND, names.sink_id, READ),
        ],
        "auditor": [
            (TOPIC, WILDCARD, READ),
            (TOPIC, WILDCARD, AclOperation.DESCRIBE_CONFIGS),
            (GROUP_KIND, GROUP, DESCRIBE),
        ],
    }


def acls_of(user: str, allowed: Sequence[Rule]) -> list[Acl]:
    """Return the ACLs of a user."""
    return [
        Acl(kind, name, PatternType.LITERAL, f"User:{user}", WILDCARD, operation, Permission.ALLOW)
        for kind, name, operation in allowed
    ]


class DemoUsers:
    """Users of one run, whose names end with that of the run.

    Args:
        admin: Access of a user that may add users and ACLs, by a mechanism of SCRAM.
        run_name: Name of the run.
        names: Resources of the run.

    Raises:
        InvalidArgument: The mechanism of the administrator is none of SCRAM.
    """

    def __init__(self, admin: Access, run_name: str, names: Names) -> None:
        self._admin = admin
        self._mechanism = admin.properties.get(MECHANISM, "")
        passwords = {role: secrets.token_urlsafe(PASSWORD_BYTES) for role in rules(names)}
        self._names = {role: f"{role}-{run_name}" for role in passwords}
        self._passwords = {self._names[role]: password for role, password in passwords.items()}
        self._acls = [acl for role, allowed in rules(names).items() for acl in acls_of(self._names[role], allowed)]
        users = {role: admin.with_user(self._names[role], password) for role, password in passwords.items()}
        self.accesses = Accesses(admin, **users)

    def add(self) -> None:
        """Add users and ACLs, and return when each broker has them. Raise ClientError, or TimeoutError after 30 s."""
        asyncio.run(self._add())

    def remove(self) -> None:
        """Remove users and ACLs. Raise ClientError."""
        asyncio.run(self._remove())

    async def _add(self) -> None:
        async with self._admin.cluster() as cluster:
            for user, password in self._passwords.items():
                await set_user(cluster, user, password, self._mechanism)
            await create_acls(cluster, self._acls)
            brokers = (await cluster.fetch_metadata([])).brokers.values()
        async with asyncio.timeout(APPLIED_SECONDS_MAX):
            for broker in brokers:
                await self._await_applied(f"{broker.host}:{broker.port}")

    async def _await_applied(self, address: str) -> None:
        """Wait until one broker has the ACLs and accepts the users."""
        async with self._admin.through(address, None).cluster() as cluster:
            await _until(partial(self._has_acls, cluster))
        for access in (self.accesses.producer, self.accesses.spark, self.accesses.auditor):
            await _until(partial(_is_accepted, access.through(address, None)))

    async def _has_acls(self, cluster: Cluster) -> bool:
        return set(self._acls) <= set(await describe_acls(cluster))

    async def _remove(self) -> None:
        async with self._admin.cluster() as cluster:
            for user in self._passwords:
                await delete_acls(cluster, AclFilter(principal=f"User:{user}"))
                await remove_user(cluster, user, self._mechanism)


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await holds():
            return
        await asyncio.sleep(APPLIED_INTERVAL_SECONDS)


async def _is_accepted(access: Access) -> bool:
    with suppress(AuthenticationFailed):
        async with access.cluster():
            return True
    return False
