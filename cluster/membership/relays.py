"""Pings made for others: whom to tell when they are answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RELAYS_MAX: Final = 256
"""Pings for others that wait for an answer; further requests are not helped."""


@dataclass(frozen=True, slots=True)
class Relay:
    """`asker` wants to hear, under its own `sequence`, that `subject` has answered. Nobody waits after `until` (own time)."""

    asker: int
    sequence: int
    subject: int
    until: int


class Relays:
    """By the sequence number of the own ping."""

    def __init__(self) -> None:
        """None yet."""
        self._waiting: dict[int, Relay] = {}

    @property
    def full(self) -> bool:
        return len(self._waiting) >= RELAYS_MAX

    def add(self, sequence: int, relay: Relay) -> None:
        self._waiting[sequence] = relay

    def take(self, sequence: int, subject: int) -> Relay | None:
        """The request that this answer belongs to, once."""
        relay = self._waiting.get(sequence)
        if relay is None or relay.subject != subject:
            return None
        return self._waiting.pop(sequence)

    def expire(self, own: int) -> None:
        """Forget those that nobody waits for."""
        for sequence in [sequence for sequence, relay in self._waiting.items() if relay.until <= own]:
            del self._waiting[sequence]
