"""Security of a run: certificates of two authorities, users with several mechanisms, and their ACLs.

Clients talk SASL_SSL with the proxy, and the proxy with the brokers. Brokers talk SSL with client certificates. The
proxy ends TLS on both sides, so that it finds frames; a login passes it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.client import Acl, AclOperation, PatternType, Permission, ResourceType
from odradek.client.security.credentials import LOGIN_MODULES, OAUTH_HANDLERS, OAUTHBEARER
from odradek.client.security.names import CALLBACK_HANDLER, TOKEN_URL
from odradek.local.authority import Authority
from odradek.local.secured import now
from odradek.local.security import AUTHORIZER
from odradek.pipeline.cluster.access import Access
from odradek.private_files import make_private_directory, replace_private
from tests.chaos.clients.common import COMMITTER, IDEMPOTENT, PLAIN, TRANSACTIONAL, TRANSFORMER
from tests.chaos.tokens import AUDIENCE, ISSUER, JWKS_REFRESH_MS, TokenProvider

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ADMIN, WRITER, ROTATED, BEARER, READER, MEMBER, TENANT, HOSTILE = (
    "chaos-admin", "chaos-writer", "chaos-rotated", "chaos-bearer", "chaos-reader", "chaos-member", "chaos-tenant",
    "mallory",
)  # fmt: skip
MECHANISM_OF: Final = {
    ADMIN: "SCRAM-SHA-512",
    WRITER: "SCRAM-SHA-256",
    ROTATED: "SCRAM-SHA-512",
    BEARER: OAUTHBEARER,
    READER: "PLAIN",
    MEMBER: "SCRAM-SHA-512",
    TENANT: "SCRAM-SHA-256",
    HOSTILE: "SCRAM-SHA-512",
}
"""Mechanism of each user.

The password of ROTATED, the key for the tokens of BEARER and the ACL of TENANT change in the run. HOSTILE has no ACL.
"""
TENANT_TOPIC: Final = "tenant-topic"
PASSWORD_BYTES: Final = 12
AUTHORITIES: Final = 2
WRITTEN_PREFIXES: Final = ("chaos-a", "chaos-b", "chaos-in")
GROUP_PREFIXES: Final = ("confluent-", "aio-", "java-", "committers-")


def user_of(library: str, kind: str) -> str:
    """Return the user of a client process."""
    if kind in {TRANSFORMER, COMMITTER}:
        return MEMBER
    if kind == IDEMPOTENT:
        return BEARER
    if kind in {PLAIN, TRANSACTIONAL}:
        return ROTATED if library == "aio" else WRITER
    return READER


def acls() -> list[Acl]:
    """Return the ACLs of all users."""
    topic, group, identifier = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
    read, write, describe = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
    writes = [
        *[(user, topic, name, write) for user in (WRITER, ROTATED, BEARER) for name in WRITTEN_PREFIXES],
        *[(user, identifier, "tx-", write) for user in (WRITER, ROTATED)],
    ]
    members = [
        (MEMBER, topic, "chaos-in", read),
        (MEMBER, topic, "chaos-out", write),
        *[(MEMBER, group, prefix, read) for prefix in GROUP_PREFIXES],
        *[(MEMBER, identifier, prefix, write) for prefix in GROUP_PREFIXES],
    ]
    # The group id of a reader is its process name, c001 and so on. librdkafka looks up the coordinator of a group that
    # it does not use.
    readers = [(READER, topic, "chaos-", read), (READER, group, "c0", describe), (READER, group, "c1", describe)]
    return [
        Acl(kind, name, PatternType.PREFIXED, f"User:{user}", "*", operation, Permission.ALLOW)
        for user, kind, name, operation in (*writes, *members, *readers)
    ] + [tenant_acl()]


def tenant_acl() -> Acl:
    """Return the ACL that is removed and added again during a run."""
    return Acl(
        ResourceType.TOPIC,
        TENANT_TOPIC,
        PatternType.LITERAL,
        f"User:{TENANT}",
        "*",
        AclOperation.WRITE,
        Permission.ALLOW,
    )


@dataclass
class ChaosSecurity:
    """Files of a secured run below `directory`. `super_users` has users without any check, to plant a fault."""

    directory: Path
    super_users: Sequence[str] = (ADMIN,)
    passwords: dict[str, str] = field(default_factory=dict)
    signing: int = 0
    """Number of the authority that signs the current certificates."""
    trusted: set[int] = field(default_factory=lambda: {0})
    """Numbers of the authorities that the brokers and the proxy trust."""
    tokens: TokenProvider = field(init=False)
    """Provider of the tokens of BEARER."""
    _issued: int = 0

    def __post_init__(self) -> None:
        self.tokens = TokenProvider(self.directory, BEARER)

    @property
    def proxy(self) -> Path:
        return self.directory / "proxy.pem"

    @property
    def trust(self) -> Path:
        """Certificates that brokers and proxy trust."""
        return self.directory / "trusted.pem"

    @property
    def client_trust(self) -> Path:
        """Certificates that clients trust: those of both authorities, because clients read them once."""
        return self.directory / "clients-trusted.pem"

    def broker(self, node_id: int) -> Path:
        return self.directory / f"broker-{node_id}.pem"

    def properties(self, user: str) -> Path:
        """Return the file with the client properties of a user."""
        return self.directory / f"client-{user}.properties"

    def access(self, bootstrap: str, user: str) -> Access:
        """Return the access of a user."""
        return Access.of_file(bootstrap, self.properties(user))

    def prepare(self, node_ids: Sequence[int]) -> None:
        """Make all files, once before the first start."""
        make_private_directory(self.directory)
        self.tokens.prepare()
        for user in MECHANISM_OF:
            self.set_password(user, secrets.token_urlsafe(PASSWORD_BYTES))
        replace_private(self.client_trust, "".join(self._authority(number) for number in range(AUTHORITIES)))
        self.write_trust()
        self.write_certificates(node_ids)
        scram = [user for user, mechanism in MECHANISM_OF.items() if mechanism.startswith("SCRAM")]
        lines = [f"{MECHANISM_OF[user]}=[name={user},password={self.passwords[user]}]\n" for user in scram]
        replace_private(self.directory / "first-users", "".join(lines))

    def broker_rows(self, node_id: int) -> Mapping[str, str]:
        """Return the properties of a broker."""
        plain = LOGIN_MODULES["PLAIN"]
        return {
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SSL",
            "listener.name.brokers.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker(node_id)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            "listener.name.clients.sasl.enabled.mechanisms": ",".join(sorted(set(MECHANISM_OF.values()))),
            "listener.name.clients.plain.sasl.jaas.config": (
                f'{plain} required user_{READER}="{self.passwords[READER]}";'
            ),
            "sasl.oauthbearer.jwks.endpoint.url": self.tokens.jwks.as_uri(),
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": str(JWKS_REFRESH_MS),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "odradek.bootstrap.scram.file": str(self.directory / "first-users"),
            "authorizer.class.name": AUTHORIZER,
            "super.users": ";".join(f"User:{user}" for user in self.super_users),
        }

    def set_password(self, user: str, password: str) -> None:
        """Write the client properties of a user with another password. A user of OAUTHBEARER has a token instead."""
        self.passwords[user] = password
        mechanism = MECHANISM_OF[user]
        rows = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.client_trust),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{LOGIN_MODULES[mechanism]} required username="{user}" password="{password}";',
        }
        if mechanism == OAUTHBEARER:
            rows |= {
                "sasl.jaas.config": f"{LOGIN_MODULES[mechanism]} required;",
                CALLBACK_HANDLER: OAUTH_HANDLERS[0],
                TOKEN_URL: self.tokens.token_file.as_uri(),
            }
        replace_private(self.properties(user), "".join(f"{name}={value}\n" for name, value in rows.items()))

    def write_trust(self) -> None:
        """Replace the file of trusted certificates by those of the authorities in `trusted`."""
        replace_private(self.trust, "".join(self._authority(number) for number in sorted(self.trusted)))

    def write_certificates(self, node_ids: Sequence[int]) -> None:
        """Replace the certificates of all brokers and of the proxy by new ones of the authority `signing`."""
        self._issued += 1
        folder = self.directory / f"issued-{self._issued}"
        make_private_directory(folder)
        for name in ("authority.key", "authority.pem"):
            replace_private(folder / name, (self._folder(self.signing) / name).read_text())
        authority = Authority.in_directory(folder, now())
        for number, path in ((0, self.proxy), *((node_id, self.broker(node_id)) for node_id in node_ids)):
            authority.broker(number, (), now()).replace(path)

    def _authority(self, number: int) -> str:
        return Authority.in_directory(self._folder(number), now()).certificate_file.read_text()

    def _folder(self, number: int) -> Path:
        return self.directory / f"authority-{number}"
