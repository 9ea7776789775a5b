"""Tagged fields of Odradek brokers about the client of a transactional id or of a producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.extensions import DESCRIBED_ADDRESS_TAG, DESCRIBED_CLIENT_ID_TAG, DESCRIBED_IDLE_TAG, IDLE

if TYPE_CHECKING:
    from collections.abc import Sequence


def client_fields(tagged: Sequence[tuple[int, bytes]]) -> tuple[str | None, str | None, int | None]:
    """Return client id, address and idle time in milliseconds. A field that the broker does not send is None."""
    fields = dict(tagged)
    client_id, address = fields.get(DESCRIBED_CLIENT_ID_TAG), fields.get(DESCRIBED_ADDRESS_TAG)
    idle = fields.get(DESCRIBED_IDLE_TAG)
    return (
        None if client_id is None else client_id.decode(errors="replace"),
        None if address is None else address.decode(errors="replace"),
        None if idle is None or len(idle) != IDLE.size else IDLE.unpack(idle)[0],
    )
