"""Tagged fields about the client of a transactional id or of a producer, for operators."""

from odradek.client_shares import Client
from odradek.protocol.extensions import DESCRIBED_ADDRESS_TAG, DESCRIBED_CLIENT_ID_TAG, DESCRIBED_IDLE_TAG, IDLE


def described_client(client_id: str | None, client: Client | None, idle_ms: int) -> tuple[tuple[int, bytes], ...]:
    """Return the tagged fields: the client id and the address if they are known, and the idle time.

    `client_id` is that of the last request, and precedes that of `client`.
    """
    if client_id is None and client is not None:
        client_id = client.client_id
    fields = [] if client_id is None else [(DESCRIBED_CLIENT_ID_TAG, client_id.encode())]
    if client is not None:
        fields.append((DESCRIBED_ADDRESS_TAG, client.address.encode()))
    return (*fields, (DESCRIBED_IDLE_TAG, IDLE.pack(idle_ms)))
