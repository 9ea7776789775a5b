"""Values of charts from samples of the protocol and from metrics of brokers."""

from __future__ import annotations

import math

import pytest

from odradek.client import TransactionDescription
from odradek.client.admin.groups import GroupLag
from odradek.console.model.charts import (
    METRIC_NAMES,
    ProtocolSample,
    broker_values,
    protocol_values,
    quantile,
)
from odradek.console.model.prometheus import parse
from odradek.console.model.series import History, Rates


def test_samples_of_the_protocol_become_rates_sums_and_ages() -> None:
    rates, history = Rates(), History()
    group = GroupLag("g", "classic", "consumer", "Stable", 1, 7, 4)
    without = GroupLag("h", "classic", "consumer", "Empty", 1, None, None)
    transaction = TransactionDescription("id", "Ongoing", 1, 0, None, 1, 60_000, 90_000, [])
    first = ProtocolSample({("t", 0): (3, 10), ("t", 1): (5, 5), ("u", 0): (None, 2)}, [transaction], [group, without])
    values = protocol_values(first, 100, rates, history)
    assert values["held_back"] == {"t": 7}
    assert values["transactions"] == {"Ongoing": 1, "PrepareCommit": 0, "PrepareAbort": 0}
    assert values["oldest"] == {"oldest": 10}
    assert (values["lag"], values["stable_lag"]) == ({"g": 7}, {"g": 4})
    assert values["written"] == {}
    second = ProtocolSample({("t", 0): (3, 30), ("t", 1): (5, 15), ("u", 0): (2, 2)}, None, None)
    later = protocol_values(second, 105, rates, history)
    assert later == {"written": {"t": 6, "u": 0}, "held_back": {"t": 37}}


TEXT = """# HELP x y
kafka_network_requestmetrics_requests_total{request="Produce"} 10
kafka_network_requestmetrics_requests_total{request="Fetch"} 5
kafka_network_requestmetrics_totaltime_seconds_bucket{request="Produce",le="0.01"} 90
kafka_network_requestmetrics_totaltime_seconds_bucket{request="Produce",le="+Inf"} 100
kafka_server_brokertopicmetrics_bytesin_total{topic="a\\"b\\\\n\\n,}"} 4 1700000000000
odradek_transactions_committed_total NaN
odradek_transactions_aborted_total +Inf
other_metric 3
odradek_byte_budget_used_bytes
odradek_event_loop_lag_max_seconds 1e-3
"""


def test_metrics_of_prometheus_are_parsed_with_escapes() -> None:
    found = parse(TEXT, METRIC_NAMES)
    assert [row.value for row in found["kafka_network_requestmetrics_requests_total"]] == [10, 5]
    [row] = found["kafka_server_brokertopicmetrics_bytesin_total"]
    assert (row.labels, row.value) == ({"topic": 'a"b\\n\n,}'}, 4)
    assert "other_metric" not in found
    assert "odradek_transactions_committed_total" not in found
    assert "odradek_transactions_aborted_total" not in found
    assert "odradek_byte_budget_used_bytes" not in found


def test_metrics_of_brokers_become_rates_by_broker() -> None:
    rates, history = Rates(), History()
    broker_values({"b:1": parse(TEXT, METRIC_NAMES)}, 100, rates, history)
    later = TEXT.replace(" 10\n", " 30\n").replace(" 90\n", " 190\n").replace(" 100\n", " 200\n")
    values = broker_values({"b:1": parse(later, METRIC_NAMES)}, 110, rates, history)
    assert values["requests"] == {"b:1": 2}
    assert values["loop_lag"] == {"b:1": 0.001}
    assert values["produce_time"]["b:1"] == pytest.approx(0.0099)
    assert values["connections"] == {}


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        ({}, None),
        ({"0.1": 0.0, "+Inf": 0.0}, None),
        ({"0.1": 100.0, "0.2": 100.0, "+Inf": 100.0}, 0.099),
        ({"0.1": 0.0, "0.2": 100.0, "+Inf": 100.0}, 0.199),
        ({"0.1": 1.0, "+Inf": 100.0}, 0.1),
        ({"": 9, "fast": 9, "nan": 9, "1": 2, "+Inf": 2}, 0.99),
    ],
)
def test_quantile_of_a_histogram(buckets: dict[str, float], expected: float | None) -> None:
    found = quantile(buckets)
    assert found == expected or (found is not None and expected is not None and math.isclose(found, expected))
