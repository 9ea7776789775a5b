"""What the coordinator knows about one transactional id. Values only: nothing here changes in place."""

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from odradek.coordinator.txn.epochs import NO_EPOCH
from odradek.coordinator.txn.ports import TopicPartition
from odradek.protocol.batch import NO_PRODUCER_ID, NO_TIMESTAMP

NEVER_TIMES_OUT_MS: Final = 2_147_483_647
"""The time-out of a transaction that takes part in a two-phase commit (KIP-939)."""

Partitions = dict[TopicPartition, None]
"""An ordered set of partitions; never changed in place."""


class TxnState(IntEnum):
    """Codes of the log (TransactionLogValue.TransactionStatus)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def shown(self) -> str:
        """Kafka's name, as in DescribeTransactions and ListTransactions."""
        return _SHOWN[self]

    @property
    def is_prepared(self) -> bool:
        return self is TxnState.PREPARE_COMMIT or self is TxnState.PREPARE_ABORT

    @property
    def is_complete(self) -> bool:
        return self is TxnState.COMPLETE_COMMIT or self is TxnState.COMPLETE_ABORT


_SHOWN: Final = {state: "".join(word.title() for word in state.name.split("_")) for state in TxnState}
STATE_BY_NAME: Final = {shown: state for state, shown in _SHOWN.items()}

MAY_FOLLOW: Final[dict[TxnState, tuple[TxnState, ...]]] = {
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
"""state -> the states it may be entered from. Every row of transitions.py is checked against it at import."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id.

    `last_producer_epoch` and `client_id` are not in the log: after a load they are -1 and None, as in Kafka (a KIP-360
    retry that meets a new coordinator is fenced). A log written below transaction.version 1 has no room for the
    previous and next producer id and the client's version either.
    """

    transactional_id: str
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TxnState = TxnState.EMPTY
    partitions: Partitions = field(default_factory=dict)
    start_ms: int = NO_TIMESTAMP
    update_ms: int = NO_TIMESTAMP
    prev_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_EPOCH
    client_version: int = 0
    client_id: str | None = None

    @property
    def is_new(self) -> bool:
        """Nothing has been decided about this id yet."""
        return self.producer_epoch == NO_EPOCH

    @property
    def deadline_ms(self) -> int | None:
        """Wall-clock time after which an ongoing transaction is aborted; None when it never is."""
        if self.state is not TxnState.ONGOING or self.timeout_ms == NEVER_TIMES_OUT_MS:
            return None
        return self.start_ms + self.timeout_ms

    def timed_out(self, now_ms: int) -> bool:
        deadline_ms = self.deadline_ms
        return deadline_ms is not None and deadline_ms < now_ms

    def as_replayed(self, *, feature_level: int) -> "Transaction":
        """What a successor reads out of the log in place of this."""
        kept = replace(self, last_producer_epoch=NO_EPOCH, client_id=None)
        if feature_level >= 1:
            return kept
        return replace(kept, prev_producer_id=NO_PRODUCER_ID, next_producer_id=NO_PRODUCER_ID, client_version=0)
