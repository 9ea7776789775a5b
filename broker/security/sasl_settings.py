"""Settings of SASL on one listener. `odradek.broker.config.sasl` parses them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Settings of the validation of tokens (`sasl.oauthbearer.*`)."""

    audiences: tuple[str, ...]
    """Accepted audiences; a token needs one of them. Empty: any."""
    issuer: str | None
    """Accepted issuer; None: any."""
    clock_skew_s: int
    sub_claim: str = "sub"
    scope_claim: str = "scope"


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Settings of OAUTHBEARER."""

    rules: TokenRules
    jwks_url: str
    refresh_ms: int


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """Settings of one listener with SASL."""

    max_reauth_ms: Mapping[str, int]
    """Maximum milliseconds of a session by enabled mechanism; 0: no limit."""
    passwords: Mapping[str, str] = field(repr=False)
    """Passwords of PLAIN by user."""
    tokens: TokenSettings | None
    """Settings of OAUTHBEARER; None if it is not enabled."""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Return the enabled mechanisms."""
        return tuple(self.max_reauth_ms)
