"""State of one transactional id on the transaction coordinator. All values are immutable."""

from dataclasses import field, replace
from typing import Final, NamedTuple

from odradek.coordinator.txn.ports import TopicPartition
from odradek.frozen import frozen_dataclass
from odradek.protocol.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from odradek.protocol.txn_state import NEVER_TIMES_OUT_MS, TxnState

Partitions = dict[TopicPartition, None]
"""Ordered set of partitions. The partitions of a `Transaction` are never changed in place."""


class ProducerIdentity(NamedTuple):
    """Producer id and producer epoch."""

    producer_id: int
    producer_epoch: int


VALID_PREVIOUS_STATES: Final[dict[TxnState, tuple[TxnState, ...]]] = {
    TxnState.EMPTY: (TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT),
    TxnState.ONGOING: (TxnState.ONGOING, TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT),
    TxnState.PREPARE_COMMIT: (TxnState.ONGOING,),
    TxnState.PREPARE_ABORT: (
        TxnState.ONGOING,
        TxnState.PREPARE_EPOCH_FENCE,
        TxnState.EMPTY,
        TxnState.COMPLETE_COMMIT,
        TxnState.COMPLETE_ABORT,
    ),
    TxnState.COMPLETE_COMMIT: (TxnState.PREPARE_COMMIT,),
    TxnState.COMPLETE_ABORT: (TxnState.PREPARE_ABORT,),
    TxnState.DEAD: (TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT),
    TxnState.PREPARE_EPOCH_FENCE: (TxnState.ONGOING,),
}
"""State -> states from which it may be entered. The table in transitions.py is checked against it at import."""


@frozen_dataclass(frozen=True, slots=True)
class Transaction:
    """State of one transactional id.

    The log does not contain `last_producer_epoch` and `client_id`. After a load they are -1 and None, as in Kafka: a
    new coordinator fences the retry of an InitProducerId request with a producer id (KIP-360). Below
    transaction.version 1 the log also lacks the previous producer id and the client version, unless there is a next
    identity.

    The next identity is that of the client while it differs from that of the transaction, otherwise -1/-1
    (`odradek.coordinator.txn.identities`).
    """

    transactional_id: str
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int = 0
    state: TxnState = TxnState.EMPTY
    partitions: Partitions = field(default_factory=dict)
    start_ms: int = NO_TIMESTAMP
    update_ms: int = NO_TIMESTAMP
    prev_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0
    client_id: str | None = None

    @property
    def is_new(self) -> bool:
        """True if no record of the id was written yet."""
        return self.producer_epoch == NO_PRODUCER_EPOCH

    @property
    def has_next_identity(self) -> bool:
        """True if the identity of the client differs from that of the transaction."""
        return self.next_producer_id != NO_PRODUCER_ID

    @property
    def client_identity(self) -> ProducerIdentity:
        """Identity that the next request of the client must have."""
        if self.has_next_identity:
            return ProducerIdentity(self.next_producer_id, self.next_producer_epoch)
        return self.own_identity

    @property
    def own_identity(self) -> ProducerIdentity:
        """Identity of the batches in Ongoing, and of the markers in the Prepare states."""
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def is_kept(self) -> bool:
        """True if InitProducerId has kept the ongoing transaction. It can only be committed or aborted (KIP-939)."""
        return self.state is TxnState.ONGOING and self.has_next_identity

    @property
    def never_times_out(self) -> bool:
        """True if the transactions of the id take part in a two-phase commit, so that no time-out aborts them."""
        return self.timeout_ms == NEVER_TIMES_OUT_MS

    @property
    def deadline_ms(self) -> int | None:
        """Wall-clock time in ms after which an ongoing transaction is aborted; None if it has no deadline."""
        if self.state is not TxnState.ONGOING or self.never_times_out:
            return None
        return self.start_ms + self.timeout_ms

    def timed_out(self, now_ms: int) -> bool:
        """Return True if the transaction is ongoing and its deadline has passed."""
        deadline_ms = self.deadline_ms
        return deadline_ms is not None and deadline_ms < now_ms

    def as_replayed(self, *, feature_level: int) -> "Transaction":
        """Return the state that a new coordinator reads from the log, with the record format of `feature_level`."""
        kept = replace(self, last_producer_epoch=NO_PRODUCER_EPOCH, client_id=None)
        if feature_level >= 1 or self.has_next_identity:
            return kept
        return replace(kept, prev_producer_id=NO_PRODUCER_ID, client_version=0)
