"""Charts of the page of metrics: what each shows, and its values from a sample. This module is pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.console.model.series import Chart, Rates, limited

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from odradek.client import GroupLag, TransactionDescription
    from odradek.client.admin.groups import Ends
    from odradek.console.model.prometheus import MetricSample, Scrape
    from odradek.console.model.series import History, Values

PROTOCOL_CHARTS: Final = (
    Chart("written", "Records written", "rate", "Advance of the high watermarks by topic, markers included."),
    Chart("held_back", "Held back by transactions", "count", "High watermark minus last stable offset, by topic."),
    Chart("transactions", "Open transactions", "count", "Transactional ids with an open transaction, by state."),
    Chart("oldest", "Oldest open transaction", "seconds", "Age of the oldest open transaction.", adds_up=False),
    Chart("stable_lag", "Lag to the last stable offset", "count", "Records that read_committed consumers can read."),
    Chart("lag", "Lag to the high watermark", "count", "Committed records and those of open transactions, by group."),
)
"""Charts from the protocol, for each kind of broker."""

_REQUESTS: Final = "kafka_network_requestmetrics_requests_total"
_ERRORS: Final = "kafka_network_requestmetrics_errors_total"
_TIMES: Final = "kafka_network_requestmetrics_totaltime_seconds_bucket"
_BYTES_IN: Final = "kafka_server_brokertopicmetrics_bytesin_total"
_BYTES_OUT: Final = "kafka_server_brokertopicmetrics_bytesout_total"
_COMMITTED: Final = "odradek_transactions_committed_total"
_ABORTED: Final = "odradek_transactions_aborted_total"
_TIMED_OUT: Final = "odradek_transactions_timed_out_total"
_FENCED: Final = "odradek_transactions_fenced_total"
_CONNECTIONS: Final = "kafka_server_socketservermetrics_connection_count"
_LOOP_LAG: Final = "odradek_event_loop_lag_max_seconds"
_BUDGET: Final = "odradek_byte_budget_used_bytes"
METRIC_NAMES: Final = frozenset(
    {
        _REQUESTS,
        _ERRORS,
        _TIMES,
        _BYTES_IN,
        _BYTES_OUT,
        _COMMITTED,
        _ABORTED,
        _TIMED_OUT,
        _FENCED,
        _CONNECTIONS,
        _LOOP_LAG,
        _BUDGET,
    }
)
"""Metrics of brokers that the charts use."""
TIMED_REQUEST: Final = "Produce"
QUANTILE: Final = 0.99

BROKER_CHARTS: Final = (
    Chart("bytes_in", "Bytes written", "bytes_rate", "Bytes of record batches that each broker appended as leader."),
    Chart("bytes_out", "Bytes read", "bytes_rate", "Bytes of record batches that consumers fetched from each broker."),
    Chart("requests", "Requests", "rate", "Requests to which each broker has responded."),
    Chart("errors", "Errors", "rate", "Error codes in responses of each broker."),
    Chart("produce_time", "Produce, 99th percentile", "seconds", "Time to the response by broker.", adds_up=False),
    Chart("ended", "Transactions ended", "rate", "Decisions of all coordinators."),
    Chart("connections", "Connections", "count", "Open connections of clients and brokers by broker."),
    Chart("loop_lag", "Event loop", "seconds", "Maximum delay of the event loop between samples.", adds_up=False),
    Chart("budget", "Requests in memory", "bytes", "Bytes of requests and responses in memory by broker."),
)
"""Charts from the metrics of Odradek brokers."""


@dataclass(frozen=True, slots=True)
class ProtocolSample:
    """Values that one sample reads over the protocol. A part that was not read is None.

    Attributes:
        ends: Last stable offset and high watermark by topic and partition.
        transactions: Open transactions.
        groups: Groups with their lag.
    """

    ends: Mapping[tuple[str, int], Ends] | None
    transactions: Iterable[TransactionDescription] | None
    groups: Iterable[GroupLag] | None


def protocol_values(sample: ProtocolSample, at_s: float, rates: Rates, history: History) -> dict[str, Values]:
    """Return the values of PROTOCOL_CHARTS."""
    found: dict[str, Values] = {}
    if sample.ends is not None:
        found["written"] = _written(sample.ends, at_s, rates)
        found["held_back"] = _held_back(sample.ends)
    if sample.transactions is not None:
        found["transactions"], found["oldest"] = _transactions(sample.transactions, at_s)
    if sample.groups is not None:
        rows = list(sample.groups)
        found["lag"] = {row.group: float(row.lag) for row in rows if row.lag is not None}
        found["stable_lag"] = {row.group: float(row.stable_lag) for row in rows if row.stable_lag is not None}
    return _limited(found, PROTOCOL_CHARTS, history)


def _written(ends: Mapping[tuple[str, int], Ends], at_s: float, rates: Rates) -> Values:
    """Return the records per second by topic. Partitions without an offset have no part in it."""
    highs = {f"{topic}\0{index}": float(high) for (topic, index), (_, high) in ends.items() if high is not None}
    written: Values = {}
    for label, rate in rates.of("written", at_s, highs).items():
        topic = label.partition("\0")[0]
        written[topic] = written.get(topic, 0.0) + rate
    return written


def _held_back(ends: Mapping[tuple[str, int], Ends]) -> Values:
    held: Values = {}
    for (topic, _), (stable, high) in ends.items():
        if stable is not None and high is not None and stable < high:
            held[topic] = held.get(topic, 0.0) + high - stable
    return held


def _transactions(rows: Iterable[TransactionDescription], at_s: float) -> tuple[Values, Values]:
    states = {"Ongoing": 0.0, "PrepareCommit": 0.0, "PrepareAbort": 0.0}
    oldest = 0.0
    for row in rows:
        states[row.state] = states.get(row.state, 0.0) + 1
        if row.started_ms is not None:
            oldest = max(oldest, at_s - row.started_ms / 1000)
    return states, {"oldest": oldest}


def broker_values(scrapes: Mapping[str, Scrape], at_s: float, rates: Rates, history: History) -> dict[str, Values]:
    """Return the values of BROKER_CHARTS from the metrics of brokers by name."""

    def sums(metric: str) -> Values:
        return {name: total(scrape.get(metric, ())) for name, scrape in scrapes.items() if metric in scrape}

    def summed(metric: str) -> float:
        return sum(sums(metric).values())

    ended = {"committed": _COMMITTED, "aborted": _ABORTED, "timed out": _TIMED_OUT, "fenced": _FENCED}
    found = {
        "bytes_in": rates.of("bytes_in", at_s, sums(_BYTES_IN)),
        "bytes_out": rates.of("bytes_out", at_s, sums(_BYTES_OUT)),
        "requests": rates.of("requests", at_s, sums(_REQUESTS)),
        "errors": rates.of("errors", at_s, sums(_ERRORS)),
        "produce_time": produce_times(scrapes, at_s, rates),
        "ended": rates.of("ended", at_s, {name: summed(metric) for name, metric in ended.items()}),
        "connections": sums(_CONNECTIONS),
        "loop_lag": sums(_LOOP_LAG),
        "budget": sums(_BUDGET),
    }
    return _limited(found, BROKER_CHARTS, history)


def _limited(found: dict[str, Values], charts: Iterable[Chart], history: History) -> dict[str, Values]:
    return {
        chart.name: limited(found[chart.name], history.labels(chart.name), adds_up=chart.adds_up)
        for chart in charts
        if chart.name in found
    }


def total(samples: Iterable[MetricSample]) -> float:
    """Return the sum of the rows of a metric."""
    return sum(row.value for row in samples)


def produce_times(scrapes: Mapping[str, Scrape], at_s: float, rates: Rates) -> Values:
    """Return a quantile of the time of Produce requests since the last sample, by broker that had one."""
    found: Values = {}
    for name, scrape in scrapes.items():
        buckets = {
            row.labels.get("le", ""): row.value
            for row in scrape.get(_TIMES, ())
            if row.labels.get("request") == TIMED_REQUEST
        }
        value = quantile(rates.of(f"produce_time\0{name}", at_s, buckets))
        if value is not None:
            found[name] = value
    return found


def _bound(text: str) -> float | None:
    """Return the upper bound of a bucket, or None if the label is not a number."""
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


def quantile(buckets: Values, part: float = QUANTILE) -> float | None:
    """Return a quantile of a histogram of cumulative counts by upper bound. Return None if it is empty.

    The value is interpolated within its bucket. In the last bucket it is the upper bound of the one before. A bucket
    without a number as its bound is left out: other exporters than Odradek's may have the metric, too.
    """
    rows = sorted((bound, count) for text, count in buckets.items() if (bound := _bound(text)) is not None)
    if not rows or rows[-1][1] <= 0:
        return None
    wanted = part * rows[-1][1]
    below, before = 0.0, 0.0
    for bound, count in rows:
        if count >= wanted:
            if math.isinf(bound):
                return below
            return below + (bound - below) * (wanted - before) / max(count - before, 1e-12)
        below, before = bound, count
    return below
