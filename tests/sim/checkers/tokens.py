"""I20: a delegation token logs in only while it exists and has not expired, by the metadata log and the broker's clock.

Part of the checkers, without code of the broker.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.sim.checkers.evidence import Evidence


class TokenChange(NamedTuple):
    """One record of the metadata log. `valid_until_ms` is None if the record removes the token."""

    offset: int
    token_id: str
    valid_until_ms: int | None


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """A login with a token that succeeded on a broker."""

    broker: str
    token_id: str
    offset_first: int
    offset_last: int
    """Offsets of the metadata log that the broker had applied before and after the login."""
    wall_ms: int
    """The lowest wall-clock time of the broker during the login."""


@dataclass
class TokenEvidence:
    """Records of delegation tokens in the metadata log, and what clients did with tokens."""

    changes: list[TokenChange] = field(default_factory=list)
    logins: list[TokenLogin] = field(default_factory=list)
    outlived: list[str] = field(default_factory=list)
    """Brokers that served a request after the end of a session that began with a token."""


def check_tokens(evidence: "Evidence") -> Iterator[str]:
    """I20: each login with a token, and each session of one, is within the validity of the token."""
    if evidence.tokens is not None:
        yield from token_findings(evidence.tokens)


def token_findings(tokens: TokenEvidence) -> Iterator[str]:
    """Yield a finding for each violation of I20."""
    for login in tokens.logins:
        validities = _validities(tokens.changes, login)
        if not any(until is not None and until >= login.wall_ms for until in validities):
            yield (
                f"I20 {login.broker} accepted a token at {login.wall_ms} that was valid until {validities}, with the "
                f"metadata of {login.offset_first} to {login.offset_last}"
            )
    for broker in tokens.outlived:
        yield f"I20 {broker} served a request after the end of a session by a token"


def _validities(changes: list[TokenChange], login: TokenLogin) -> list[int | None]:
    """Return the validity of the token at each offset that the broker had during the login; None: no token."""
    own = [change for change in changes if change.token_id == login.token_id and change.offset <= login.offset_last]
    before = [change.valid_until_ms for change in own if change.offset <= login.offset_first]
    during = [change.valid_until_ms for change in own if change.offset > login.offset_first]
    return [before[-1] if before else None, *during]
