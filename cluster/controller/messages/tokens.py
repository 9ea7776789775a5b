"""Requests and results for delegation tokens (KIP-48), and the rules of their cluster."""

from __future__ import annotations

import hashlib
from dataclasses import field
from typing import TYPE_CHECKING

from odradek.frozen import frozen_dataclass
from odradek.protocol.sasl.delegation_token import token_hmac

if TYPE_CHECKING:
    from odradek.cluster.metadata.tokens import DelegationToken

DAY_MS = 24 * 60 * 60 * 1_000


@frozen_dataclass(frozen=True, slots=True)
class TokenRules:
    """Settings of delegation tokens (`delegation.token.*`)."""

    key: bytes = field(default=b"", repr=False)
    """Key from which the secrets of tokens are derived. Empty: the cluster has no tokens."""
    max_lifetime_ms: int = 7 * DAY_MS
    validity_ms: int = DAY_MS
    """Milliseconds after which a new or renewed token expires."""
    check_interval_ms: int = DAY_MS // 24
    """Milliseconds between two removals of expired tokens."""

    @property
    def enabled(self) -> bool:
        """True if the cluster has tokens."""
        return bool(self.key)

    def hmac(self, token_id: str) -> bytes:
        """Return the secret of a token."""
        return token_hmac(self.key, token_id)

    def fingerprint(self, token_id: str) -> bytes:
        """Return the fingerprint of the secret of a token."""
        return fingerprint(self.hmac(token_id))


def fingerprint(hmac: bytes) -> bytes:
    """Return a hash of the secret of a token, for look-ups: their time reveals nothing of the secret."""
    return hashlib.sha256(hmac).digest()


@frozen_dataclass(frozen=True, slots=True)
class NewToken:
    """A token that CreateDelegationToken requests. Principals have the form `User:alice`."""

    owner: str
    requester: str
    renewers: tuple[str, ...] = ()
    max_lifetime_ms: int = -1
    """Requested lifetime in milliseconds. Not positive: that of the rules."""


@frozen_dataclass(frozen=True, slots=True)
class CreatedToken:
    """Result of CreateDelegationToken."""

    token_id: str
    token: DelegationToken
    hmac: bytes = field(repr=False)
