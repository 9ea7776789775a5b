"""Exceptions of the sink. None of them leaves a visible part of a batch."""


class SinkError(Exception):
    """A batch was not written. The next run of the query writes it again, as a whole."""


class InvalidInput(SinkError, ValueError):
    """An option, a column or a record is invalid. A repetition fails in the same way."""


class SinkInUse(SinkError):
    """Another query uses the sink name, so the transactions of this query are fenced."""


class CheckpointMismatch(SinkError):
    """The ledger of the sink belongs to a query with another checkpoint."""


class BatchFailed(SinkError):
    """A batch failed in each of its attempts. All of them were aborted."""


class Doubtful(Exception):
    """An attempt to write a batch may be incomplete or duplicated. It must be aborted, and can be repeated."""
