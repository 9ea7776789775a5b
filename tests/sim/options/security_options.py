"""Options of runs with SASL and ACLs: several tenants, one of which is hostile."""

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.sim.options.run_options import Options

PROBABILITY: Final = 0.25
"""Share of the seeds without a hostile client and without power cuts that lose records."""
TOKENS_PROBABILITY: Final = 0.5
"""Share of the runs with SASL and ACLs that have delegation tokens."""
TOKEN_VALIDITY_MS: Final = 3_000
"""Milliseconds after which a delegation token expires, unless it is renewed."""
TOKEN_LIFETIME_MS: Final = 12_000
"""Milliseconds after which a delegation token cannot be renewed."""


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """Authentication and authorization of one run."""

    max_session_ms: int
    """connections.max.reauth.ms; 0: sessions do not expire."""
    think_seconds: float
    """Mean time between two attempts of the hostile tenant."""
    change_seconds: float
    """Mean time between two changes of ACLs."""
    tokens: bool
    """True if clients use delegation tokens."""

    def describe(self) -> str:
        sessions = f"sessions of {self.max_session_ms} ms" if self.max_session_ms else "endless sessions"
        return f"SASL and ACLs with {sessions}{' and delegation tokens' if self.tokens else ''}"


def generate_security(options: "Options", *, wanted: bool | None = None) -> None:
    """Add SASL and ACLs to part of the runs. It uses a generator of its own, so that other generated values stay.

    A hostile client needs a listener without a login, and a power cut without flushes may remove ACLs.
    """
    rng = Random(options.seed * 49_979_687 + 37)
    sampled = rng.random() < PROBABILITY
    if not (sampled if wanted is None else wanted) or options.hostile is not None or options.lossy:
        return
    options.security = SecurityOptions(
        max_session_ms=rng.choice((0, 2_000, 8_000)),
        think_seconds=rng.choice((0.02, 0.05, 0.15)),
        change_seconds=rng.choice((0.1, 0.3, 1.0)),
        tokens=rng.random() < TOKENS_PROBABILITY,
    )
