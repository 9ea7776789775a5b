"""Metrics of requests by API: number, time, bytes and error codes."""

from bisect import bisect_left
from typing import Any, Final

from odradek.broker.dispatch.error_counts import Counts, counter_of
from odradek.broker.requests.api import AnyApi

BOUNDS_US: Final = (
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    5_000_000,
)
"""Upper bounds of the histogram buckets in microseconds, from a request without disk access to a time-out.

A last bucket counts longer times.
"""


class Histogram:
    """Histogram of times in microseconds, with the buckets of `BOUNDS_US`."""

    __slots__ = ("buckets", "sum_us")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_US) + 1)
        self.sum_us = 0

    def observe(self, us: int) -> None:
        """Count one time of `us` microseconds."""
        self.buckets[bisect_left(BOUNDS_US, us)] += 1
        self.sum_us += us

    @property
    def count(self) -> int:
        """Return the number of observed times."""
        return sum(self.buckets)


class ApiMetrics:
    """Metrics of one API since the start of the process."""

    __slots__ = ("bytes_in", "bytes_out", "errors", "name", "times")

    def __init__(self, name: str) -> None:
        self.name = name
        self.times = Histogram()
        """Times from the complete request to its response, including waits: TotalTimeMs of Kafka's RequestMetrics."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.errors: Counts = {}
        """Number of occurrences by error code, at all levels of the responses."""

    def count_response(self, response: Any, *, bytes_in: int, bytes_out: int, us: int) -> None:
        """Count a request with `bytes_in` bytes whose response, sent after `us` microseconds, has `bytes_out` bytes.

        `response` is None for a request without a response (Produce with acks=0).
        """
        self.times.observe(us)
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        if response is not None:
            counter_of(type(response))(response, self.errors)


def api_metrics(table: tuple[AnyApi, ...]) -> dict[int, ApiMetrics]:
    """Return empty metrics for each row of `table`, by API key."""
    return {api.key: ApiMetrics(api.name) for api in table}
