"""Table of the transactions of one shard. It counts the partitions that they contain."""

from typing import Final

from odradek.client_shares import Client, ClientShares
from odradek.coordinator.bounded_ids import BoundedIdDict
from odradek.coordinator.txn.id_shares import IdShares
from odradek.coordinator.txn.state import Transaction

PARTITIONS_MAX: Final = 100_000
"""Maximum partitions in all transactions of a partition of `__transaction_state`. Kafka has no limit.

A partition counts once per transaction, until its transaction is complete. It takes about 125 bytes of memory. One
client fills at most three quarters of the capacity (`odradek.client_shares`).
"""
_UNKNOWN_CLIENT: Final = Client("", "")
"""Client for which partitions count if the client of the id is not known. After a load, it is known for no id."""


class TransactionTable(BoundedIdDict[Transaction]):
    """Transactions by transactional id, with the number of their partitions in total and per client.

    The counts follow from the entries. The partitions of a transaction count for the client of its id at the last
    change of their number. A load may exceed PARTITIONS_MAX: the table accepts what the log contains.
    """

    __slots__ = ("_counted", "_held", "_shares", "partition_count")

    def __init__(self, shares: IdShares) -> None:
        """Create an empty table. `shares` has the client of each id."""
        super().__init__()
        self.partition_count = 0
        self._shares = shares
        self._held = ClientShares()
        self._counted: dict[str, tuple[Client, int]] = {}
        """Ids with partitions: the client for which the partitions count, and their number."""

    def __setitem__(self, key: str, value: Transaction) -> None:
        super().__setitem__(key, value)
        counted = self._counted.get(key)
        if len(value.partitions) != (counted[1] if counted else 0):
            self._count(key, len(value.partitions))

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        if key in self._counted:
            self._count(key, 0)

    def has_capacity_for_partitions(self, transactional_id: str, added: int) -> bool:
        """Return True if the transaction of the id may get `added` further partitions."""
        free = PARTITIONS_MAX - self.partition_count
        return added <= free and self._held.allows(self._client_of(transactional_id), free, added)

    def _count(self, transactional_id: str, partitions: int) -> None:
        client, before = self._counted.pop(transactional_id, (_UNKNOWN_CLIENT, 0))
        if before:
            self._held.remove(client, before)
        if partitions:
            client = self._held.add(self._client_of(transactional_id), partitions)
            self._counted[transactional_id] = (client, partitions)
        self.partition_count += partitions - before

    def _client_of(self, transactional_id: str) -> Client:
        return self._shares.client_of(transactional_id) or _UNKNOWN_CLIENT
