"""Shares of the clients in the transactional ids of one shard."""

from odradek.client_shares import Client, ClientShares
from odradek.coordinator.bounded_ids import text_bytes_max


class IdShares:
    """Clients that have created the transactional ids of a shard. The client of an id can be unknown.

    This is soft state: the log does not contain the clients. After a load, the id of a client counts when the client
    initializes it again.
    """

    def __init__(self) -> None:
        """Create the shares of a shard without ids."""
        self._clients: dict[str, Client] = {}
        self._ids = ClientShares()
        self._bytes = ClientShares()

    def client_of(self, transactional_id: str) -> Client | None:
        """Return the client that has created the id; None if it is not known."""
        return self._clients.get(transactional_id)

    def allows(self, client: Client | None, *, free_ids: int, free_bytes: int) -> bool:
        """Return True if `client` may create an id. An unknown client has no limit of its own."""
        if client is None:
            return True
        return self._ids.allows(client, free_ids) and self._bytes.allows(client, free_bytes)

    def claim(self, transactional_id: str, client: Client) -> None:
        """Count the id for `client`, unless it counts for a client already."""
        if transactional_id not in self._clients:
            self._clients[transactional_id] = self._ids.add(client)
            self._bytes.add(client, _bytes_of(transactional_id))

    def release(self, transactional_id: str) -> None:
        """Stop counting the id, because it was removed."""
        client = self._clients.pop(transactional_id, None)
        if client is not None:
            self._ids.remove(client)
            self._bytes.remove(client, _bytes_of(transactional_id))


def _bytes_of(transactional_id: str) -> int:
    return text_bytes_max(transactional_id) + 1
