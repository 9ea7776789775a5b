"""Limits of the number of connections, of their creation rate, and of log lines about them."""

from collections.abc import Callable
from typing import Final

from odradek.broker.config.connections import OVERRIDES, parse_overrides
from odradek.broker.config.properties import PROPERTIES
from odradek.broker.config.topics import TopicSettings
from odradek.broker.process.open_files import unlimited_connections
from odradek.broker.quota.client_quotas import ClientQuotas

LOG_LINES_PER_SECOND: Final = 5
"""Maximum log lines per second about connections that the broker closes because of their requests.

Enough to see the cause; a hostile client cannot fill the disk with them.
"""
ADDRESSES_MAX: Final = 10_000
"""Maximum client addresses whose last connection is remembered for the connection quota of an address (KIP-612).

Beyond it the address that connected least recently is forgotten, so its quota starts again. 10,000 entries take about
1 MiB.
"""
TOTAL_MAX: Final = PROPERTIES["max.connections"]
PER_ADDRESS_MAX: Final = PROPERTIES["max.connections.per.ip"]
PER_ADDRESS_OVERRIDES: Final = PROPERTIES[OVERRIDES]
OPEN_FILES: Final = "open files (ulimit -n)"
"""Name of the limit of `odradek.broker.process.open_files` in log lines."""
PROTECTED_EXTRA: Final = 32
"""Connections that a listener for brokers alone accepts beyond the limit of open files. Each broker opens five."""
CREATION_RATE: Final = PROPERTIES["max.connection.creation.rate"]


class ConnectionLimits:
    """Counts of connections over all listeners: in total, per address, and per second.

    Connections of a protected listener (`odradek.broker.requests.listener.Listener`) count in the total, but only the
    limits per address apply to them, as in Kafka: too many clients must not separate a broker from its cluster.
    """

    def __init__(
        self,
        settings: TopicSettings,
        quotas: ClientQuotas,
        connections_max: Callable[[], int] = unlimited_connections,
    ) -> None:
        """A change of a limit applies to connections that are accepted after it.

        `connections_max` is the number of connections that the limit of open files permits. It applies to protected
        listeners, too, with PROTECTED_EXTRA more connections.
        """
        self.connections_max = connections_max
        self._settings = settings
        self._quotas = quotas
        self._last_slot_s = 0.0
        self._last_slots_s: dict[str, float] = {}
        self.total = 0
        self._by_address: dict[str, int] = {}

    def admit(self, address: str, *, protected: bool = False, evict: Callable[[], bool] = lambda: False) -> str | None:
        """Count a new connection. If it exceeds a limit, return the name of that limit and do not count it.

        At the limit of open files, `evict` closes another connection; it returns False if it finds none.
        """
        if not protected and self.total >= self._settings.current(TOTAL_MAX):
            return TOTAL_MAX.name
        overrides = parse_overrides(self._settings.current(PER_ADDRESS_OVERRIDES))
        per_address_max = overrides.get(address, self._settings.current(PER_ADDRESS_MAX))
        if self._by_address.get(address, 0) >= per_address_max:
            return PER_ADDRESS_MAX.name
        if self.total >= self.connections_max() + (PROTECTED_EXTRA if protected else 0) and not evict():
            return OPEN_FILES
        self.total += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1
        return None

    def leave(self, address: str) -> None:
        """Remove a closed connection from the counts."""
        self.total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def delay_s(self, address: str, now_s: float, *, protected: bool = False) -> float:
        """Return the seconds to delay the reading of a connection that is accepted at `now_s`, for the creation rates.

        After a second without connections, those that one second allows are not delayed.
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
    """Limit of log lines per second, which counts the lines that it suppresses."""

    def __init__(self, lines_per_second: int = LOG_LINES_PER_SECOND) -> None:
        self._lines_per_second = lines_per_second
        self._second = -1
        self._logged = 0
        self._suppressed = 0

    def admit(self, now_s: float) -> int | None:
        """Return the number of lines suppressed since the last line that was logged; None to suppress this line."""
        second = int(now_s)
        if second != self._second:
            self._second, self._logged = second, 0
        if self._logged >= self._lines_per_second:
            self._suppressed += 1
            return None
        self._logged += 1
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
