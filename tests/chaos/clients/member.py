"""What members of groups note of themselves, whatever library they are of: which partitions they were given and lost, what they took, what they committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.chaos.clients.common import HEARTBEAT_MS, POLL_INTERVAL_MS, SESSION_MS, TRANSFORMER, Client
from tests.sim.history import INFO

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Place = tuple[str, int]

BATCH_MAX = 50
ABORTED_SHARE = 0.2
"""Of the transactions, on purpose."""
SLOW_SHARE = 0.05
SLOW_SECONDS = 1.5
"""So long some transactions stay open, so that a rebalance meets them."""


class Notes:
    """The journal of one member."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.order = client.order
        self.transforms = client.order.kind == TRANSFORMER
        self._write("member", role=self.order.kind, protocol=self.order.protocol)

    def _write(self, op: str, **details: Any) -> None:
        self.client.journal.write(op, INFO, group=self.order.group, **details)

    def assigned(self, places: Iterable[Place]) -> None:
        self._write("assigned", places=sorted(places))

    def revoked(self, places: Iterable[Place]) -> None:
        self._write("revoked", places=sorted(places))

    def took(self, offsets: Mapping[Place, list[int]], transaction: int = -1) -> None:
        """Written before anything is made of it."""
        for place, each in offsets.items():
            self._write("took", place=place, offsets=each, txn=transaction)

    def committed(self, ends: Mapping[Place, int]) -> None:
        """Written after it was acknowledged."""
        self._write("committed", ends=[(*place, offset) for place, offset in ends.items()])


def key_of(group: str, place: Place, offset: int) -> bytes:
    """The key of an output: it names its group and its input."""
    return f"{group}|{place[0]}|{place[1]}|{offset}".encode()


def session() -> dict[str, Any]:
    """Of the classic protocol, by the names of the Python libraries."""
    return {
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "max_poll_interval_ms": POLL_INTERVAL_MS,
    }
