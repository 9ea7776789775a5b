"""I17: no broker carries out a forged request, and each request of a hostile client ends."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.sim.checkers.evidence import Evidence

RESPONDED, CLOSED = "responded", "closed the connection"
UNANSWERED: Final = "neither responded nor closed the connection"
UNREACHABLE: Final = "not reached"
"""The broker was down, or failed, or no response was due."""


@dataclass(slots=True)
class HostileRequest:
    """One attack of a hostile client on one broker."""

    kind: str
    what: str
    broker: str
    outcome: str = UNREACHABLE
    carried_out: bool = False
    """True if a response shows that the broker carried out a request that it must refuse."""


def check_hostile(evidence: "Evidence") -> Iterator[str]:
    """I17: brokers respond to each hostile request or close the connection, and carry out no forged request.

    Exceptions and failures of the broker are findings of their own, for requests of any client.
    """
    yield from unexpected_results(evidence.hostile)


def unexpected_results(requests: Iterable[HostileRequest]) -> Iterator[str]:
    """Yield a finding for each request with a result that no broker may give."""
    for request in requests:
        if request.outcome == UNANSWERED:
            yield f"I17 {request.broker} {UNANSWERED} of a hostile client: {request.kind}, {request.what}"
        if request.carried_out:
            yield f"I17 {request.broker} carried out a request of a hostile client: {request.kind}, {request.what}"
