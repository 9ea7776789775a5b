"""Files of a secured local cluster: certificates, passwords and client properties, made before brokers start."""

from __future__ import annotations

import json
import secrets
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from odradek.local.authority import Authority
from odradek.local.plan import WILDCARD_ADDRESSES
from odradek.local.processes import BrokerFailed
from odradek.local.security import Mode, SecurityFiles, java_properties, read_passwords, scram_lines
from odradek.private_files import replace_private

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from odradek.local.plan import Plan
    from odradek.local.security import Security

PASSWORD_BYTES: Final = 18
"""Random bytes of a generated password: 144 bits."""
TOKEN_KEY_BYTES: Final = 32
"""Random bytes of the key of delegation tokens: 256 bits, as SHA-256 has."""


def prepare(directory: Path, plan: Plan, node_ids: Sequence[int], *, may_create: bool, now: datetime) -> None:
    """Make or renew the files that these brokers and their clients need. Do nothing if the cluster has no security.

    `may_create` is False if the cluster was formed: its metadata log has the credentials, and refuses new passwords.
    Raise BrokerFailed if passwords are missing then.
    """
    security = plan.security
    if security is None:
        return
    files = SecurityFiles(directory)
    authority = Authority.in_directory(files.certificates, now)
    for node_id in node_ids:
        authority.broker(node_id, _hosts(plan), now)
    passwords: dict[str, str] = {}
    if security.kind is Mode.MTLS:
        for name in security.all_users:
            authority.user(name, now)
    elif security.kind is Mode.SASL_SSL:
        passwords = _passwords(files, security, may_create=may_create)
        if may_create:
            replace_private(files.scram, scram_lines(passwords))
        else:
            files.scram.unlink(missing_ok=True)  # the metadata log has the credentials
        if not files.token_key.exists():
            replace_private(files.token_key, secrets.token_urlsafe(TOKEN_KEY_BYTES) + "\n")
    for user in security.all_users or (None,):
        properties = java_properties(security, files, user, passwords)
        replace_private(files.client(user), "".join(f"{name}={value}\n" for name, value in properties.items()))


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def _passwords(files: SecurityFiles, security: Security, *, may_create: bool) -> dict[str, str]:
    passwords = read_passwords(files)
    missing = [name for name in security.all_users if name not in passwords]
    if missing and not may_create:
        raise BrokerFailed(f"{files.passwords} has no password of {', '.join(missing)}; restore it from a copy")
    if missing:
        passwords |= {name: secrets.token_urlsafe(PASSWORD_BYTES) for name in missing}
        replace_private(files.passwords, json.dumps(passwords, indent=1) + "\n")
    return passwords


def _hosts(plan: Plan) -> list[str]:
    """Return the names and addresses by which clients connect, beside the local ones."""
    return [plan.host] if plan.host not in WILDCARD_ADDRESSES else [socket.gethostname(), socket.getfqdn()]
