"""Identity of a transaction that was prepared for a two-phase commit (KIP-939)."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.client.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction whose records are written, and which waits for the decision of its owner.

    `str()` gives the text that an owner stores with its decision, as PreparedTxnState of Kafka's clients.
    """

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> PreparedTransaction:
        """Return the transaction of a stored text. Raise InvalidArgument if it is no `producer id:producer epoch`."""
        producer_id, separator, epoch = text.partition(":")
        if not (separator and producer_id.isdecimal() and epoch.isdecimal()):
            raise InvalidArgument(f"{text!r} is no prepared transaction: expected producer id:producer epoch")
        return cls(int(producer_id), int(epoch))
