"""Committed records that clients have received: every later leader must hold them (invariants I10 and I11)."""

from tests.sim.checkers.batches import Batch
from tests.sim.checkers.replica_log import ReplicaLog


class CommittedLog:
    """Committed batches of one partition: those below the highest high watermark that a client or follower received."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.end = 0
        self._epochs: list[int] = []
        """Leader epoch of the partition when each batch was found to be committed."""

    def extend(self, log: ReplicaLog, end: int, epoch: int) -> bool:
        """Add the batches of `log` below `end` as committed in leader epoch `epoch` or before.

        Return False if the log ends before `end`.
        """
        if end <= self.end:
            return True
        if log.end < end:
            return False
        for batch in log.batches:
            if batch.base_offset >= self.end and batch.last_offset < end:
                self.batches.append(batch)
                self._epochs.append(max(epoch, batch.leader_epoch))
                self.end = batch.last_offset + 1
        return True

    def missing_in(self, log: ReplicaLog, epoch: int) -> Batch | None:
        """Return the first committed batch that the log of the leader of `epoch` lacks or holds with other contents.

        Batches that were committed in later leader epochs are not compared: a leader that was deposed does not hold
        what its successors committed. They can have committed batches of epochs before its own, too.
        """
        for batch, committed_in in zip(self.batches, self._epochs, strict=True):
            if committed_in > epoch:
                return None
            held = log.find(batch.base_offset)
            if held is None or held.identity != batch.identity:
                return batch
        return None
