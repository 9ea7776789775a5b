"""Delegation tokens as the metadata log has them (KIP-48). The log has no secret of them."""

from __future__ import annotations

from typing import Final

from odradek.frozen import frozen_dataclass

USER: Final = "User:"
"""Beginning of the principals that can own tokens."""


@frozen_dataclass(frozen=True, slots=True)
class DelegationToken:
    """One token. Principals have the form `User:alice`; times are milliseconds of wall-clock time."""

    owner: str
    """Principal of the clients that log in with the token."""
    requester: str
    """Principal that has created the token."""
    renewers: tuple[str, ...]
    """Principals that may renew and expire the token, besides its owner."""
    issued_ms: int
    max_ms: int
    """Time beyond which the token cannot be renewed."""
    expires_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Return True if the token is no longer valid."""
        return min(self.max_ms, self.expires_ms) < now_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Return True for the owner and the renewers of the token. They may also expire it."""
        return principal == self.owner or principal in self.renewers

    def names(self, principal: str) -> bool:
        """Return True for the owner, the requester and the renewers of the token. They may see it."""
        return principal == self.requester or self.may_be_renewed_by(principal)
