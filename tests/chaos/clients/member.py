"""Journal of a group member, common to all client libraries: assignments, revocations, consumed inputs and commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.chaos.clients.common import HEARTBEAT_MS, POLL_INTERVAL_MS, SESSION_MS, TRANSFORMER, Client
from tests.sim.history import INFO

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Partition = tuple[str, int]

BATCH_MAX = 50
ABORTED_SHARE = 0.2
"""Share of transactions that a transformer aborts intentionally."""
SLOW_SHARE = 0.05
"""Share of slow transactions. They make rebalances during an open transaction frequent."""
SLOW_SECONDS = 1.5
"""Pause within a slow transaction, in seconds."""


class MemberJournal:
    """The journal of one member."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.spec = client.spec
        self.transforms = client.spec.kind == TRANSFORMER
        self._write("member", role=self.spec.kind, protocol=self.spec.protocol)

    def _write(self, op: str, **details: Any) -> None:
        self.client.journal.write(op, INFO, group=self.spec.group, **details)

    def assigned(self, partitions: Iterable[Partition]) -> None:
        self._write("assigned", partitions=sorted(partitions))

    def revoked(self, partitions: Iterable[Partition]) -> None:
        self._write("revoked", partitions=sorted(partitions))

    def consumed(self, offsets: Mapping[Partition, list[int]], transaction: int = -1) -> None:
        """Record consumed inputs, before the member processes them."""
        for partition, consumed in offsets.items():
            self._write("consumed", partition=partition, offsets=consumed, txn=transaction)

    def committed(self, ends: Mapping[Partition, int]) -> None:
        """Record committed offsets, after the commit was acknowledged."""
        self._write("committed", ends=[(*partition, offset) for partition, offset in ends.items()])


def key_of(group: str, partition: Partition, offset: int) -> bytes:
    """Return the key of an output record: its group and its input partition and offset."""
    return f"{group}|{partition[0]}|{partition[1]}|{offset}".encode()


def session() -> dict[str, Any]:
    """Return the settings of the classic protocol, with aiokafka's names."""
    return {
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "max_poll_interval_ms": POLL_INTERVAL_MS,
    }
