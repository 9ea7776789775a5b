"""Count the decisions about transactions since the start of the broker, over all shards and leader epochs."""

from dataclasses import dataclass

from odradek.coordinator.txn.state import Transaction
from odradek.protocol.txn_state import TxnState


@dataclass(slots=True)
class TxnStats:
    """Counters of decisions. A decision counts when it is applied, not when its record is loaded."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    """Aborts after the transaction time-out. They also count as `aborted`."""
    fenced: int = 0
    """Producers that a new producer with the same transactional id has fenced."""

    def decided(self, before: Transaction | None, after: Transaction) -> None:
        """Count the change of an id from `before` to `after`."""
        if before is None or before.is_new:
            return
        if after.state is not before.state:
            if after.state is TxnState.PREPARE_COMMIT:
                self.committed += 1
            elif after.state is TxnState.PREPARE_ABORT:
                self.aborted += 1
                self.timed_out += before.timed_out(after.update_ms)
        initialized = after.state is TxnState.EMPTY or after.is_kept
        if initialized and after.client_identity != before.client_identity:
            self.fenced += 1
