"""Render docs/grafana.json, a dashboard of the most important metrics in `families`."""

import json
import re
from typing import Any, Final

from odradek.broker.metrics.families import FAMILIES, Kind

_RATE: Final = "sum by ({by}) (rate({name}[$__rate_interval]))"
PANEL_WIDTH: Final = 12
PANEL_HEIGHT: Final = 8
SCHEMA_VERSION: Final = 39
_NET: Final = "kafka_network_requestmetrics"
_TOPIC: Final = "kafka_server_brokertopicmetrics"
_QUANTILE: Final = "histogram_quantile(0.99, sum by (le, {by}) (rate({name}_bucket[$__rate_interval])))"

# title, unit, {legend: expression}
PANELS: Final[tuple[tuple[str, str, dict[str, str]], ...]] = (
    ("Requests", "reqps", {"{{request}}": _RATE.format(by="request", name=f"{_NET}_requests_total")}),
    ("Errors", "reqps", {"{{request}} {{error}}": _RATE.format(by="request, error", name=f"{_NET}_errors_total")}),
    (
        "Request latency, 99th percentile",
        "s",
        {"{{request}}": _QUANTILE.format(by="request", name=f"{_NET}_totaltime_seconds")},
    ),
    ("Event loop lag, maximum", "s", {"{{instance}}": "odradek_event_loop_lag_max_seconds"}),
    ("Unexpected exceptions", "short", {"{{instance}}": "increase(odradek_unexpected_exceptions_total[$__range])"}),
    ("Bytes in", "Bps", {"{{topic}}": _RATE.format(by="topic", name=f"{_TOPIC}_bytesin_total")}),
    ("Bytes out", "Bps", {"{{topic}}": _RATE.format(by="topic", name=f"{_TOPIC}_bytesout_total")}),
    ("Records in", "cps", {"{{topic}}": _RATE.format(by="topic", name=f"{_TOPIC}_messagesin_total")}),
    (
        "Replication",
        "short",
        {
            "under-replicated {{instance}}": "kafka_server_replicamanager_underreplicatedpartitions",
            "under min.insync.replicas {{instance}}": "kafka_server_replicamanager_underminisrpartitioncount",
            "offline replicas {{instance}}": "kafka_server_replicamanager_offlinereplicacount",
            "partitions without a leader": "sum(kafka_controller_kafkacontroller_offlinepartitionscount)",
        },
    ),
    (
        "Completed transactions",
        "cps",
        {
            "committed": "sum(rate(odradek_transactions_committed_total[$__rate_interval]))",
            "aborted": "sum(rate(odradek_transactions_aborted_total[$__rate_interval]))",
            "timed out": "sum(rate(odradek_transactions_timed_out_total[$__rate_interval]))",
            "fenced": "sum(rate(odradek_transactions_fenced_total[$__rate_interval]))",
        },
    ),
    ("Transactional ids by state", "short", {"{{state}}": "sum by (state) (odradek_transactions)"}),
    (
        "Oldest open transaction",
        "s",
        {
            "{{instance}}": "odradek_transactions_oldest_open_seconds",
            "in doubt {{instance}}": "odradek_transactions_oldest_in_doubt_seconds",
        },
    ),
    (
        "Offsets that wait for open transactions",
        "short",
        {"{{topic}}": "sum by (topic) (kafka_cluster_partition_laststableoffsetlag)"},
    ),
    (
        "Groups",
        "short",
        {"{{protocol}} {{state}}": "sum by (protocol, state) (kafka_server_group_coordinator_metrics_group_count)"},
    ),
    ("Consumer group lag", "short", {"{{group}}": "sum by (group) (odradek_group_lag)"}),
    ("Log size", "bytes", {"{{topic}}": "sum by (topic) (kafka_log_log_size)"}),
    (
        "Brokers",
        "short",
        {
            "active": "sum(kafka_controller_kafkacontroller_activebrokercount)",
            "fenced": "sum(kafka_controller_kafkacontroller_fencedbrokercount)",
            "active controllers": "sum(kafka_controller_kafkacontroller_activecontrollercount)",
        },
    ),
)
_NAME: Final = re.compile(r"\b(?:kafka|odradek)_[a-z_]+")
_PARTS: Final = ("_bucket", "_count", "_sum")


def unknown_names() -> list[str]:
    """Return the names in the panels that no metric of `families` has."""
    unknown = []
    for _, _, targets in PANELS:
        for name in (name for expression in targets.values() for name in _NAME.findall(expression)):
            base = next((name.removesuffix(part) for part in _PARTS if name.endswith(part)), name)
            family = FAMILIES.get(name) or FAMILIES.get(base)
            if family is None or (name not in FAMILIES and family.kind is not Kind.HISTOGRAM):
                unknown.append(name)
    return unknown


def render() -> str:
    source = {"type": "prometheus", "uid": "${source}"}
    panels: list[dict[str, Any]] = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": title,
            "datasource": source,
            "gridPos": {
                "h": PANEL_HEIGHT,
                "w": PANEL_WIDTH,
                "x": number % 2 * PANEL_WIDTH,
                "y": number // 2 * PANEL_HEIGHT,
            },
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [
                {"refId": chr(ord("A") + position), "datasource": source, "expr": expression, "legendFormat": legend}
                for position, (legend, expression) in enumerate(targets.items())
            ],
        }
        for number, (title, unit, targets) in enumerate(PANELS)
    ]
    dashboard = {
        "title": "Odradek",
        "uid": "odradek",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["kafka", "odradek"],
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
        },
        "panels": panels,
    }
    return json.dumps(dashboard, indent=1) + "\n"
