"""Spark streaming queries that end after the available data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

QUERY_SECONDS_MAX = 240
"""A guard against a query that never ends, below the time-out of a test; says nothing about speed."""


def ended(query: StreamingQuery) -> StreamingQuery:
    """Wait until the query processed all available data. Raise AssertionError with its progress on a timeout."""
    over = query.awaitTermination(QUERY_SECONDS_MAX)
    if not over:
        stands = f"{query.status} after {[progress.json for progress in query.recentProgress]}"
        query.stop()
        raise AssertionError(f"the query does not end: {stands}")
    assert query.exception() is None
    return query
