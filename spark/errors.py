"""Exceptions of the sink and of the source. The sink leaves no visible part of a batch, unless the batch is decided in
mode 2pc: then a BatchFailed or SinkInUse leaves a part, until the next run or the other driver commits the rest.
"""


class SinkError(Exception):
    """The sink cannot confirm that a batch is written. The next run of the query reads the ledger, and then skips the
    batch or writes it as a whole.
    """


class InvalidInput(SinkError, ValueError):
    """An option, a column or a record is invalid. A repetition fails in the same way."""


class SinkInUse(SinkError):
    """Another query or thread uses the sink name, or a batch of the same run does."""


class CheckpointMismatch(SinkError):
    """The ledger of the sink belongs to a query with another checkpoint, or to a later state of the checkpoint."""


class BatchFailed(SinkError):
    """A batch failed in each of its attempts.

    They were aborted. If the commit of the last one had no response, the ledger shows its outcome to the next run. In
    mode 2pc, it is also raised if a batch is decided, and not all its transactions could be committed.
    """


class Doubtful(Exception):
    """An attempt to write a batch may be incomplete or duplicated. It must be aborted, and can be repeated."""


class DataLoss(Exception):
    """Records that the source must read were deleted, or their partition was. `failOnDataLoss` permits this."""
