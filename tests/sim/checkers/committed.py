"""What clients were told is committed: it has to be in every leader's log from then on (I10, I11)."""

from tests.sim.checkers.batches import Batch
from tests.sim.checkers.replica_log import ReplicaLog


class CommittedLog:
    """The batches below the highest watermark that anybody was told of one partition."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.end = 0

    def extend(self, log: ReplicaLog, end: int) -> bool:
        """Everything of `log` below `end` is committed. False when the log does not reach so far."""
        if end <= self.end:
            return True
        if log.end < end:
            return False
        for batch in log.batches:
            if batch.base_offset >= self.end and batch.last_offset < end:
                self.batches.append(batch)
                self.end = batch.last_offset + 1
        return True

    def missing_in(self, log: ReplicaLog, epoch: int) -> Batch | None:
        """The first committed batch that the log of the leader of `epoch` does not hold as it was.

        A leader that has not heard of its successors yet need not hold what those have committed.
        """
        for batch in self.batches:
            if batch.leader_epoch > epoch:
                return None
            held = log.find(batch.base_offset)
            if held is None or held.identity != batch.identity:
                return batch
        return None
