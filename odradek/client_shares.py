"""Shares of the clients in a table of bounded size: one client that fills a table does not lock out other clients.

A client may add an entry while it holds less than `CLIENT_FACTOR` times the free capacity of the table. All clients of
one address together may hold less than `ADDRESS_FACTOR` times the free capacity. The limits follow the load, as the
dynamic thresholds of shared switch buffers do (Choudhury and Hahne, 1998). A single client may fill three quarters of
the table, and two clients three sevenths each. There is always capacity for one more client.

Without authentication a client chooses its client id, but not its address. So the address bounds a hostile client, and
the client id keeps apart the clients of one host.
"""

from __future__ import annotations

from typing import Final, NamedTuple

CLIENT_FACTOR: Final = 3
"""Maximum entries of one client, as a multiple of the free capacity: at most 3/4 of a table."""
ADDRESS_FACTOR: Final = 7
"""Maximum entries of all clients of one address, as a multiple of the free capacity: at most 7/8 of a table."""
CLIENT_ID_CHARACTERS_MAX: Final = 255
"""Characters of a client id that identify a client. Longer client ids are truncated: a client id can have 32 KiB."""


class Client(NamedTuple):
    """The client that has added an entry."""

    address: str
    client_id: str


def client_of(address: str, client_id: str | None) -> Client:
    """Return the client with this address and the client id of its requests."""
    return Client(address, (client_id or "")[:CLIENT_ID_CHARACTERS_MAX])


class ClientShares:
    """Number of entries, or of their bytes, of each client in one table."""

    __slots__ = ("_addresses", "_clients", "_held")

    def __init__(self) -> None:
        """Create the shares of an empty table."""
        self._clients: dict[Client, Client] = {}
        """Each client with an entry. Equal clients share one object, so that an entry needs only a reference."""
        self._held: dict[Client, int] = {}
        self._addresses: dict[str, int] = {}

    def held(self, client: Client) -> int:
        """Return the number of entries, or bytes, of `client`."""
        return self._held.get(client, 0)

    def allows(self, client: Client, free: int, amount: int = 1) -> bool:
        """Return True if `client` may add `amount` entries, one after another, to a table with `free` capacity."""
        before_last = amount - 1
        free -= before_last
        return (
            self.held(client) + before_last < CLIENT_FACTOR * free
            and self._addresses.get(client.address, 0) + before_last < ADDRESS_FACTOR * free
        )

    def add(self, client: Client, amount: int = 1) -> Client:
        """Count an entry of `client`, or `amount` bytes. Return the object that stands for equal clients."""
        self._held[client] = self._held.get(client, 0) + amount
        self._addresses[client.address] = self._addresses.get(client.address, 0) + amount
        return self._clients.setdefault(client, client)

    def remove(self, client: Client, amount: int = 1) -> None:
        """Stop counting an entry that `add` has counted."""
        self._held[client] -= amount
        if not self._held[client]:
            del self._held[client], self._clients[client]
        self._addresses[client.address] -= amount
        if not self._addresses[client.address]:
            del self._addresses[client.address]

    def clear(self) -> None:
        """Stop counting all entries."""
        self._clients.clear()
        self._held.clear()
        self._addresses.clear()
