"""Limits on connections, and on log lines about them."""

from typing import Final

from odradek.broker.config.properties import PROPERTIES
from odradek.broker.config.topics import TopicSettings
from odradek.broker.quota.client_quotas import ClientQuotas

LOG_LINES_PER_SECOND: Final = 5
"""About connections that are closed for what their clients have sent."""
ADDRESSES_MAX: Final = 10_000
"""Whose connections are remembered for a quota of addresses; who was heard of least recently begins anew."""
TOTAL_MAX: Final = PROPERTIES["max.connections"]
PER_ADDRESS_MAX: Final = PROPERTIES["max.connections.per.ip"]
CREATION_RATE: Final = PROPERTIES["max.connection.creation.rate"]


class ConnectionLimits:
    """Counts connections over all listeners: in total, by address, and by second.

    On a protected listener (`odradek.broker.requests.session.Listener`) they count in the total, and nothing but the limits of their address
    holds for them, as in Kafka: clients that are too many must not keep a broker from the rest of the cluster.
    """

    def __init__(self, settings: TopicSettings, quotas: ClientQuotas) -> None:
        """The limits may change at any time, for connections that come after that."""
        self._settings = settings
        self._quotas = quotas
        self._last_slot_s = 0.0
        self._last_slots_s: dict[str, float] = {}
        self.total = 0
        self._by_address: dict[str, int] = {}

    def admit(self, address: str, *, protected: bool = False) -> str | None:
        """Count a new connection in, or say which limit it is over (then it is not counted)."""
        if not protected and self.total >= self._settings.current(TOTAL_MAX):
            return TOTAL_MAX.name
        if self._by_address.get(address, 0) >= self._settings.current(PER_ADDRESS_MAX):
            return PER_ADDRESS_MAX.name
        self.total += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1
        return None

    def leave(self, address: str) -> None:
        self.total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def delay_s(self, address: str, now_s: float, *, protected: bool = False) -> float:
        """How long a connection made at `now_s` waits before it is read, so that the creation rates are kept.

        A second's worth of connections passes at once after a quiet second.
        """
        slot_s = now_s
        if not protected:
            slot_s = self._last_slot_s = _next_slot_s(self._last_slot_s, self._settings.current(CREATION_RATE), now_s)
        own_rate = self._quotas.connection_rate(address)
        if own_rate is not None:
            slots_s = self._last_slots_s
            slots_s[address] = _next_slot_s(slots_s.pop(address, 0.0), own_rate, now_s)
            slot_s = max(slot_s, slots_s[address])
            if len(slots_s) > ADDRESSES_MAX:
                del slots_s[next(iter(slots_s))]
        return max(0.0, slot_s - now_s)


def _next_slot_s(last_slot_s: float, rate: float, now_s: float) -> float:
    return max(last_slot_s, now_s - 1.0) + 1.0 / rate


class LogLimit:
    """Lines about clients that misbehave: so many a second, and then how many were left out. Hostile clients fill no disk."""

    def __init__(self, lines_per_second: int = LOG_LINES_PER_SECOND) -> None:
        self._lines_per_second = lines_per_second
        self._second = -1
        self._said = 0
        self._left_out = 0

    def admit(self, now_s: float) -> int | None:
        """None: say nothing. Otherwise say it, and that so many before it were left out."""
        second = int(now_s)
        if second != self._second:
            self._second, self._said = second, 0
        if self._said >= self._lines_per_second:
            self._left_out += 1
            return None
        self._said += 1
        left_out, self._left_out = self._left_out, 0
        return left_out
