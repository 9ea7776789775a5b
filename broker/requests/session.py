"""What the broker knows about one connection, and what handlers may ask of it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from odradek.broker.requests.listener import Listener
from odradek.cluster.authorizer import ANONYMOUS, Principal


@dataclass(slots=True, eq=False)
class Session:
    """One connection. Handlers read it, and park on it through `on_next_request`."""

    connection_id: int
    listener: Listener
    client_host: str
    client_port: int
    principal: Principal = ANONYMOUS
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    client_id: str | None = None
    """As the last request has it."""
    closed: bool = False
    on_close: Callable[[str], None] | None = None
    """The connection's own way to end itself; set by the listener."""
    _waiting: dict[Callable[[], None], None] = field(default_factory=dict)
    _ends: dict[Callable[[], object], None] = field(default_factory=dict)

    def on_next_request(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, as soon as this connection has another request to serve, or has ended.

        A Fetch that waits holds back every response behind it (responses keep the order of requests), so it registers
        here and answers early instead. `callback` must not raise.
        """
        self._waiting[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        """Take a callback back: what it waited for has come by itself."""
        self._waiting.pop(callback, None)

    def on_end(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` once this connection has ended, for answers that may be long in coming. What is returned takes it
        back. `callback` must not raise.
        """
        self._ends[callback] = None

        def take_back() -> None:
            self._ends.pop(callback, None)

        return take_back

    def wake_waiting(self) -> None:
        """Run and forget every registered callback, in the order of registration."""
        while self._waiting:
            callback = next(iter(self._waiting))
            del self._waiting[callback]
            callback()

    def close(self, reason: str) -> None:
        """End the connection: the only answer that a Produce with acks=0 can get is that."""
        if self.on_close is not None:
            self.on_close(reason)

    def end(self) -> None:
        """The connection is gone: nobody reads answers any more."""
        self.closed = True
        self.wake_waiting()
        ends, self._ends = self._ends, {}
        for callback in ends:
            callback()
