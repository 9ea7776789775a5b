"""One attack of a hostile client: its bytes, and what the broker must do with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.protocol.schema import Struct, field_values
from tests.support.hostile_values import ELEMENTS_MAX

CLIENT_ID: Final = "hostile"
TOPIC: Final = "hostile"
COMPACTED_TOPIC: Final = "hostile-compacted"
"""Topics of the hostile client. No other client uses them."""
RANDOM_BYTES, PARTIAL, DAMAGED, HUGE = "random bytes", "incomplete request", "damaged request", "huge array"
FORGED, FORGED_INTERNAL = "forged inter-broker request", "forged request on the listener for brokers"
LOGIN, EXTREME, IDS = "login with another secret", "invalid values", "extreme ids and epochs"
INTERNAL_RECORD, PRODUCER_IDS, MEMBERS = "record for an internal topic", "flood of producer ids", "flood of members"
SESSIONS, UNKNOWN_TOPICS, EXPANDING = "flood of fetch sessions", "unknown topics", "batch that expands"
IDLE: Final = "idle connection"
KINDS: Final = (
    RANDOM_BYTES, PARTIAL, DAMAGED, HUGE, FORGED, FORGED_INTERNAL, LOGIN, EXTREME, IDS, INTERNAL_RECORD, PRODUCER_IDS,
    MEMBERS, SESSIONS, UNKNOWN_TOPICS, EXPANDING, IDLE,
)  # fmt: skip
"""Kinds of attacks on brokers that have a listener of their own."""
VOTES: Final = "flood of forged votes"
SHARED_LISTENER_KINDS: Final = (
    RANDOM_BYTES, PARTIAL, IDS, PRODUCER_IDS, MEMBERS, SESSIONS, UNKNOWN_TOPICS, EXPANDING, IDLE, VOTES,
)  # fmt: skip
"""Kinds of attacks on brokers that share a listener with clients. A client may then act as a broker; a cluster must
survive its votes in any epoch.
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of attacks: small ones for the simulator, real ones for processes."""

    array_bytes: tuple[int, int]
    """Minimum and maximum bytes of a huge array."""
    elements_max: int
    random_bytes_max: int
    expanded_records: tuple[int, int]
    """Minimum and maximum records of a compressed batch that expands."""
    flood: int
    """Requests of a flood on one connection."""
    topics_created: int
    """Number of names that auto-creation may create in a run."""


SIMULATED: Final = Sizes((2_000, 40_000), 12_000, 500, (100, 3_000), 4, 4)
REAL: Final = Sizes((2 << 20, 8 << 20), ELEMENTS_MAX, 100_000, (10_000, 3_000_000), 100, 50)


@dataclass(frozen=True, slots=True)
class Attack:
    """Bytes for a new connection. `requests` of them need a response each, unless the broker closes the connection."""

    kind: str
    what: str
    data: bytes
    requests: int = 0
    api_key: int = -1
    """API key of the only request, whose response is decoded in `version`; -1 for other bytes."""
    version: int = -1
    refused: bool = False
    """True if the broker must close the connection or respond with an error. Without `api_key`, it must not respond."""
    closed: bool = False
    """True if the broker must close the connection."""
    internal: bool = False
    """True for the listener for brokers."""
    waits: bool = False
    """True if the response may come late or never, because the request says so."""
    half_close: bool = False
    """True if the client closes its direction of the connection after the bytes."""


def error_codes(response: object) -> list[int]:
    """Return all error codes in a response."""
    codes: list[int] = []
    if isinstance(response, list):
        for item in response:
            codes += error_codes(item)
    elif isinstance(response, Struct):
        for name, value in field_values(response):
            if name.endswith("error_code"):
                codes.append(value)
            else:
                codes += error_codes(value)
    return codes


def is_refused(response: object) -> bool:
    """Return True if a response has an error."""
    return any(error_codes(response))
