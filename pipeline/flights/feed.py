"""The feed file of the producer: one flight per line as JSON, and an index of the departure hours.

A restarted producer uses the index to continue at an hour without reading the feed from its beginning.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from odradek.pipeline.flights.plan import Hour

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

FEED = "feed.jsonl"
INDEX = "feed.index.json"


def split_hours(departures: pd.Series[str], lines: list[bytes]) -> list[Hour]:
    """Return one `Hour` for each distinct value of `departures`, in order. This function is pure.

    Args:
        departures: Departure hour of each flight, in ascending order.
        lines: The flights as JSON in the same order, each with its newline.
    """
    hours: list[Hour] = []
    start = line = 0
    for departs, rows in departures.value_counts(sort=False).sort_index().items():
        hours.append(Hour(len(hours), str(departs), int(rows), start))
        start += sum(map(len, lines[line : line + int(rows)]))
        line += int(rows)
    return hours


def write_feed(flights: pd.DataFrame, directory: Path) -> list[Hour]:
    """Write the feed and its index into `directory`. `flights` are in order of departure. Return the hours."""
    encoded = flights.to_json(orient="records", lines=True).encode()
    hours = split_hours(flights["time_hour"], encoded.splitlines(keepends=True))
    (directory / FEED).write_bytes(encoded)
    (directory / INDEX).write_text(json.dumps([asdict(hour) for hour in hours]), encoding="utf-8")
    return hours


class Feed:
    """Reader of a feed that `write_feed` wrote."""

    def __init__(self, directory: Path) -> None:
        index = json.loads((directory / INDEX).read_text(encoding="utf-8"))
        self.hours = [Hour(**hour) for hour in index]
        self._file = (directory / FEED).open("rb")

    def close(self) -> None:
        self._file.close()

    def lines(self, hour: Hour) -> list[bytes]:
        """Return the flights of one hour as JSON, without newlines."""
        self._file.seek(hour.start)
        return [self._file.readline().rstrip(b"\n") for _ in range(hour.rows)]
