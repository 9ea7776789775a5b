"""Delegation tokens: their creation, renewal, expiration and removal (KIP-48).

The rules and errors are those of Apache Kafka's DelegationTokenControlManager, with limits on the number and the size
of tokens.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from odradek.cluster.controller.messages.tokens import CreatedToken, fingerprint
from odradek.cluster.controller.state import ControllerResult, ControllerState
from odradek.cluster.metadata.records import RemoveDelegationTokenRecord
from odradek.cluster.metadata.replay.tokens import token_record
from odradek.cluster.metadata.tokens import USER, DelegationToken
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.primitives import INT64_MAX

if TYPE_CHECKING:
    from odradek.cluster.controller.commands import CreateToken, ExpireToken, RemoveExpiredTokens, RenewToken
    from odradek.cluster.controller.messages.tokens import NewToken

TOKENS_MAX: Final = 10_000
"""Maximum delegation tokens of a cluster. Each broker holds them in memory, and computes their SCRAM credentials."""
OWNER_TOKENS_MAX: Final = 1_000
"""Maximum delegation tokens of one owner. Each user may create tokens for itself, without an ACL."""
PRINCIPAL_CHARACTERS_MAX: Final = 4_096
"""Maximum characters of the owner and the renewers of one delegation token together."""
REMOVALS_PER_JOB_MAX: Final = 500
"""Maximum expired tokens that one command removes (about 5 ms). The next run follows immediately if more are due."""


def create_token(state: ControllerState, command: CreateToken, now_ms: int) -> ControllerResult[CreatedToken]:
    """Create a token. Raise Refusal."""
    rules, new = state.config.tokens, command.new
    if not all(principal.startswith(USER) for principal in (new.owner, *new.renewers)):
        raise Refusal(ErrorCode.INVALID_PRINCIPAL_TYPE, "The owner and the renewers of a token must be users.")
    _require_enabled(state)
    _check_limits(state, new)
    lifetime_ms = rules.max_lifetime_ms
    if new.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, new.max_lifetime_ms)
    max_ms = min(now_ms + lifetime_ms, INT64_MAX)
    expires_ms = min(max_ms, now_ms + rules.validity_ms)
    token = DelegationToken(new.owner, new.requester, new.renewers, now_ms, max_ms, expires_ms)
    token_id = urlsafe_b64encode(state.new_uuid().bytes).decode().rstrip("=")
    reply = CreatedToken(token_id, token, rules.hmac(token_id))
    return ControllerResult(reply, (token_record(token_id, token),))


def renew_token(state: ControllerState, command: RenewToken, now_ms: int) -> ControllerResult[int]:
    """Let a token expire later, and return the time at which it does. Raise Refusal."""
    token_id, token = _find(state, command.hmac)
    _require_valid(token, now_ms)
    _require_permission(token, command.principal)
    period_ms = state.config.tokens.validity_ms
    if command.period_ms > 0:
        period_ms = min(period_ms, command.period_ms)
    return _expires_at(token_id, token, now_ms + period_ms)


def expire_token(state: ControllerState, command: ExpireToken, now_ms: int) -> ControllerResult[int]:
    """Let a token expire after a period, or remove it if the period is negative. Raise Refusal.

    Return the time at which it expires.
    """
    token_id, token = _find(state, command.hmac)
    _require_permission(token, command.principal)
    if command.period_ms < 0:
        return ControllerResult(now_ms, (RemoveDelegationTokenRecord(token_id),))
    _require_valid(token, now_ms)
    return _expires_at(token_id, token, now_ms + command.period_ms)


def remove_expired_tokens(state: ControllerState, command: RemoveExpiredTokens, now_ms: int) -> ControllerResult[None]:
    """Remove tokens that have expired. Logins with them are refused before, at their expiration."""
    expired = [token_id for token_id, token in state.image.tokens.items() if token.is_expired(now_ms)]
    due = expired[:REMOVALS_PER_JOB_MAX]
    return ControllerResult(None, tuple(map(RemoveDelegationTokenRecord, due)), more=len(due) < len(expired))


def _expires_at(token_id: str, token: DelegationToken, time_ms: int) -> ControllerResult[int]:
    expires_ms = min(token.max_ms, time_ms)
    return ControllerResult(expires_ms, (token_record(token_id, replace(token, expires_ms=expires_ms)),))


def find_token(state: ControllerState, hmac: bytes) -> tuple[str, DelegationToken] | None:
    """Return the token with this HMAC and its id; None if it is unknown."""
    token_id = state.token_ids.get(fingerprint(hmac))
    token = None if token_id is None else state.image.tokens.get(token_id)
    return None if token_id is None or token is None else (token_id, token)


def _find(state: ControllerState, hmac: bytes) -> tuple[str, DelegationToken]:
    _require_enabled(state)
    found = find_token(state, hmac)
    if found is None:
        raise Refusal(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return found


def _require_enabled(state: ControllerState) -> None:
    if not state.config.tokens.enabled:
        raise Refusal(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


def _require_valid(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise Refusal(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _require_permission(token: DelegationToken, principal: str) -> None:
    if not token.may_be_renewed_by(principal):
        raise Refusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _check_limits(state: ControllerState, new: NewToken) -> None:
    tokens = state.image.tokens
    if len(new.owner) + sum(map(len, new.renewers)) > PRINCIPAL_CHARACTERS_MAX:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION, f"Owner and renewers have more than {PRINCIPAL_CHARACTERS_MAX} characters."
        )
    if len(tokens) >= TOKENS_MAX:
        raise Refusal(ErrorCode.POLICY_VIOLATION, f"The cluster has {TOKENS_MAX} delegation tokens; expire some.")
    if sum(token.owner == new.owner for token in tokens.values()) >= OWNER_TOKENS_MAX:
        raise Refusal(ErrorCode.POLICY_VIOLATION, f"{new.owner} has {OWNER_TOKENS_MAX} tokens; expire some.")
