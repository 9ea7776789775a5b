"""Charts of the report, with names that clients choose."""

from __future__ import annotations

import re
from html import unescape

import pytest

from odradek.pipeline.audit.charts import LABEL_END, charts
from odradek.pipeline.audit.judgment import OPEN
from odradek.pipeline.audit.statistics import Churn, Holder, Latency, OpenTransaction, Rate, Statistics


def texts_of(name: str) -> list[str]:
    """Return the texts of all charts in which `name` is the only transactional id."""
    statistics = Statistics(
        bin_ms=1_000,
        rates=[Rate(name, 0, 1, 1)],
        latencies=[Latency(name, True, 1, (1.0, 2.0, 3.0), (1.0, 2.0, 3.0))],
        open=[OpenTransaction(name, 1, OPEN, 1, 5)],
        holders=[Holder("t", 0, 1, 2, name, 1, OPEN, 5)],
        churn=[Churn(name, 1, 2, 3)],
        coordinators={},
        latest_ms=5,
    )
    found = [re.findall(r"<text[^>]*>([^<]*)</text>", chart.svg()) for chart in charts(statistics)]
    assert len(found) == 5
    return [unescape("\n".join(texts)) for texts in found]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (r"a$\frac$b", r"a$\frac$b"),
        (r"a\$b$", r"a\$b$"),
        ("_hidden", "_hidden"),
        ("a\x1b\x00\nb", "a\ufffd\ufffd\ufffdb"),
        ("a" * 30_000 + "b", "a" * LABEL_END + "\u2026" + "a" * (LABEL_END - 1) + "b"),
    ],
)
def test_each_chart_has_the_transactional_id_as_plain_text(name: str, label: str) -> None:
    assert [label in texts for texts in texts_of(name)] == [True] * 5
