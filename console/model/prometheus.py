"""Parse the text format of Prometheus. This module is pure."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

SAMPLES_MAX: Final = 20_000
"""Maximum samples per scrape that are kept. A broker has at most 10 rows per metric of a chart, apart from topics."""
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"\s*,?\s*')
_ESCAPES: Final = {"n": "\n", '"': '"', "\\": "\\"}


class MetricSample(NamedTuple):
    """A row of a metric."""

    labels: Mapping[str, str]
    value: float


Scrape = dict[str, list[MetricSample]]
"""Samples by the name of the metric."""


def parse(text: str, names: Collection[str]) -> Scrape:
    """Return the samples of the named metrics. Malformed lines, NaN and infinite values are left out."""
    found: Scrape = {}
    kept = 0
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name not in names:
            continue
        match = _SAMPLE.fullmatch(line)
        value = None if match is None else _number(match[3])
        if match is None or value is None:
            continue
        found.setdefault(name, []).append(MetricSample(dict(_labels(match[2] or "")), value))
        kept += 1
        if kept == SAMPLES_MAX:
            break
    return found


def _labels(text: str) -> Iterator[tuple[str, str]]:
    for match in _LABEL.finditer(text):
        yield match[1], re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), match[2])


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
