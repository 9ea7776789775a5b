"""Spark streaming queries that end after the available data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

QUERY_SECONDS_MAX = 240
"""Maximum time of a query. It is below the time-out of a test, so that the error shows the state of the query."""


def ended(query: StreamingQuery) -> StreamingQuery:
    """Wait until the query processed all available data. Raise AssertionError with its progress on a timeout."""
    has_ended = query.awaitTermination(QUERY_SECONDS_MAX)
    if not has_ended:
        state = f"{query.status} after {[progress.json for progress in query.recentProgress]}"
        query.stop()
        raise AssertionError(f"the query does not end: {state}")
    assert query.exception() is None
    return query
