"""What keeps clients from growing a broker without bound: the byte budget, and the limits on connections."""

from collections.abc import Callable
from typing import Any, Final, Protocol

from odradek.broker.config.properties import PROPERTIES
from odradek.broker.config.property import Property
from odradek.broker.security.authorizer import Quotas

SMALL_SHARE: Final = 8192
"""The part of the budget that every connection may hold whatever the others do: 64 KiB of 512 MiB."""
LOG_LINES_PER_SECOND: Final = 5
"""About connections that are closed for what their clients have sent."""
ANSWER_SHARE: Final = 8
"""The part of what is left that one answer made of stored records may take."""
ADDRESSES_MAX: Final = 10_000
"""Whose connections are remembered for a quota of addresses; who was heard of least recently begins anew."""
TOTAL_MAX: Final = PROPERTIES["max.connections"]
PER_ADDRESS_MAX: Final = PROPERTIES["max.connections.per.ip"]
CREATION_RATE: Final = PROPERTIES["max.connection.creation.rate"]


class Settings(Protocol):
    """Properties that may change while the broker runs (`odradek.broker.config.topics.TopicSettings`)."""

    def current(self, prop: Property) -> Any: ...


class ByteBudget:
    """Bytes of requests and responses in memory, over all connections.

    Past the limit, connections stop being read; they are resumed in the order in which they stopped. A budget that is
    filled by half-received requests would never empty by that, so the first in line is favoured: it may go on until its
    next request has been answered. At most one is at any time.

    Clients that hold much must not stop those that hold next to nothing: below its small share a connection is always
    read, so the limit is exceeded by at most one request and one small share per connection.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._small_bytes = limit_bytes // SMALL_SHARE
        self._waiting: dict[object, Callable[[], None]] = {}
        self._favoured: object | None = None
        self._favour_used = False

    def take(self, count: int) -> None:
        self.used_bytes += count

    def give(self, count: int) -> None:
        self.used_bytes -= count
        assert self.used_bytes >= 0, "more was given back than was taken"
        if self._waiting:
            self._resume()

    def answer_room(self) -> int:
        """Bytes of stored records that one answer may take now.

        The less is left the less a reader gets, so that no number of readers that never take their answers can fill the
        budget; one that does take them asks again for what it did not get.
        """
        return max(0, self.limit_bytes - self.used_bytes) // ANSWER_SHARE

    def request_taken(self, owner: object) -> None:
        """A whole request of `owner` is in work now."""
        if self._favoured is owner:
            self._favour_used = True

    def request_done(self, owner: object) -> None:
        """A request of `owner` has been answered."""
        if self._favoured is owner and self._favour_used:
            self._favoured = None
            self._resume()

    def may_read(self, owner: object, held_bytes: int, resume: Callable[[], None]) -> bool:
        """May `owner`, which holds so much, go on? If not it stands in line now, and `resume` is called when it may."""
        if self.used_bytes < self.limit_bytes or held_bytes < self._small_bytes:
            return True
        if self._favoured is None and not self._waiting:
            self._favour(owner)
        if self._favoured is owner and not self._favour_used:
            return True
        self._waiting.setdefault(owner, resume)
        return False

    def leave(self, owner: object) -> None:
        """`owner` is gone."""
        self._waiting.pop(owner, None)
        if self._favoured is owner:
            self._favoured = None
            self._resume()

    def _favour(self, owner: object) -> None:
        self._favoured, self._favour_used = owner, False

    def _resume(self) -> None:
        while self._waiting and self.used_bytes < self.limit_bytes:
            self._call_first()
        if self._waiting and self._favoured is None:
            self._favour(next(iter(self._waiting)))
            self._call_first()

    def _call_first(self) -> None:
        owner = next(iter(self._waiting))
        self._waiting.pop(owner)()


class ConnectionLimits:
    """Counts connections over all listeners: in total, by address, and by second.

    On a protected listener (`odradek.broker.network.session.Listener`) they count in the total, and nothing but the limits of their address
    holds for them, as in Kafka: clients that are too many must not keep a broker from the rest of the cluster.
    """

    def __init__(self, settings: Settings, quotas: Quotas) -> None:
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
