"""What has been decided about transactions here since the start, over all shards and leaderships."""

from dataclasses import dataclass

from odradek.coordinator.txn.state import Transaction, TxnState


@dataclass(slots=True)
class TxnStats:
    """Counted when a decision is applied, not when it is read back from the log."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    """Of those that were aborted: after their time was up."""
    fenced: int = 0
    """A newer producer of the same id has taken over."""

    def decided(self, before: Transaction | None, after: Transaction) -> None:
        if before is None or before.is_new:
            return
        if after.state is not before.state:
            if after.state is TxnState.PREPARE_COMMIT:
                self.committed += 1
            elif after.state is TxnState.PREPARE_ABORT:
                self.aborted += 1
                self.timed_out += before.timed_out(after.update_ms)
        if after.state is TxnState.EMPTY and (after.producer_id, after.producer_epoch) != (
            before.producer_id,
            before.producer_epoch,
        ):
            self.fenced += 1
