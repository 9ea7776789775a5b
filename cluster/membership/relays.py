"""Pings that other nodes requested, and the nodes that wait for their acknowledgments."""

from __future__ import annotations

from typing import Final

from odradek.frozen import frozen_dataclass

RELAYS_MAX: Final = 256
"""Maximum unacknowledged pings on behalf of other nodes. Further ping requests are ignored."""


@frozen_dataclass(frozen=True, slots=True)
class Relay:
    """A ping of `subject` for `requester`.

    The requester expects the acknowledgment under its own `sequence`, until local time `until`.
    """

    requester: int
    sequence: int
    subject: int
    until: int


class Relays:
    """The outstanding relays by the sequence number of this node's ping."""

    def __init__(self) -> None:
        self._outstanding: dict[int, Relay] = {}

    @property
    def full(self) -> bool:
        return len(self._outstanding) >= RELAYS_MAX

    def add(self, sequence: int, relay: Relay) -> None:
        self._outstanding[sequence] = relay

    def take(self, sequence: int, subject: int) -> Relay | None:
        """Remove and return the relay that this acknowledgment completes. None: it completes none."""
        relay = self._outstanding.get(sequence)
        if relay is None or relay.subject != subject:
            return None
        return self._outstanding.pop(sequence)

    def expire(self, local_time: int) -> None:
        """Forget the relays whose requester does not wait any more."""
        for sequence in [sequence for sequence, relay in self._outstanding.items() if relay.until <= local_time]:
            del self._outstanding[sequence]
