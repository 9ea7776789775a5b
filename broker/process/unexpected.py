"""Exceptions that are bugs: of request handlers and of lasting work, logged and counted."""

from collections.abc import Callable

import structlog

_logger = structlog.get_logger(__name__)

Unexpected = Callable[[str, BaseException], None]
"""Receives an exception that is a bug, and where it was raised: the name of an API or of a task."""


class UnexpectedExceptions:
    """Passes each exception that is a bug to `report`, and counts it for the metrics of the node."""

    def __init__(self, report: Unexpected) -> None:
        self._report = report
        self.count = 0

    def __call__(self, where: str, exception: BaseException) -> None:
        """Count the exception first, so that it is counted although `report` raises an exception."""
        self.count += 1
        self._report(where, exception)


def log_unexpected(where: str, exception: BaseException) -> None:
    """Log an exception that is a bug: its traceback, and `where` (an API or a task) it was raised."""
    _logger.error("unexpected exception", where=where, exc_info=exception)
