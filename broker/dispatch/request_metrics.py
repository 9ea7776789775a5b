"""What is counted for every request that is answered: a few additions to integers."""

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
"""Upper bounds of the buckets of times; the last bucket has none."""


class Histogram:
    """Times in microseconds, by `BOUNDS_US`."""

    __slots__ = ("buckets", "sum_us")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_US) + 1)
        self.sum_us = 0

    def observe(self, us: int) -> None:
        self.buckets[bisect_left(BOUNDS_US, us)] += 1
        self.sum_us += us

    @property
    def count(self) -> int:
        return sum(self.buckets)


class ApiMetrics:
    """One API since the start."""

    __slots__ = ("bytes_in", "bytes_out", "errors", "name", "times")

    def __init__(self, name: str) -> None:
        self.name = name
        self.times = Histogram()
        """From the whole request to the answer, what it waited for included: Kafka's TotalTimeMs."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.errors: Counts = {}
        """Error code -> how often, in the response or anywhere inside; NONE is not counted."""

    def answered(self, response: Any, *, bytes_in: int, bytes_out: int, us: int) -> None:
        self.times.observe(us)
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        if response is not None:
            counter_of(type(response))(response, self.errors)


def api_metrics(table: tuple[AnyApi, ...]) -> dict[int, ApiMetrics]:
    """By API key."""
    return {api.key: ApiMetrics(api.name) for api in table}
