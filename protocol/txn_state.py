"""States of a transactional id in `__transaction_state`: the numbers of TransactionLogValue, and Kafka's names."""

from enum import IntEnum
from typing import Final

NEVER_TIMES_OUT_MS: Final = 2_147_483_647
"""Time-out in ms of a transaction that takes part in a two-phase commit (KIP-939). It has no deadline."""


class TxnState(IntEnum):
    """State of a transaction. The values are those of the log (TransactionLogValue.TransactionStatus)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """Name of the state in DescribeTransactions, ListTransactions and Kafka's tools."""
        return _KAFKA_NAMES[self]

    @property
    def is_prepared(self) -> bool:
        """True for PrepareCommit and PrepareAbort."""
        return self is TxnState.PREPARE_COMMIT or self is TxnState.PREPARE_ABORT

    @property
    def is_complete(self) -> bool:
        """True for CompleteCommit and CompleteAbort."""
        return self is TxnState.COMPLETE_COMMIT or self is TxnState.COMPLETE_ABORT


_KAFKA_NAMES: Final = {state: "".join(word.title() for word in state.name.split("_")) for state in TxnState}
STATE_BY_NAME: Final = {name: state for state, name in _KAFKA_NAMES.items()}
