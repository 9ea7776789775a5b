"""The feed: the flights as JSON, one a line, and an index of the hours, so that a restarted producer finds its place."""

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
    """The transactions: runs of one departure hour. ``lines`` are the encoded flights, newline included. Pure."""
    hours: list[Hour] = []
    start = line = 0
    for departs, rows in departures.value_counts(sort=False).sort_index().items():
        hours.append(Hour(len(hours), str(departs), int(rows), start))
        start += sum(map(len, lines[line : line + int(rows)]))
        line += int(rows)
    return hours


def write_feed(flights: pd.DataFrame, directory: Path) -> list[Hour]:
    """Write feed and index; ``flights`` are in order of departure."""
    encoded = flights.to_json(orient="records", lines=True).encode()
    hours = split_hours(flights["time_hour"], encoded.splitlines(keepends=True))
    (directory / FEED).write_bytes(encoded)
    (directory / INDEX).write_text(json.dumps([asdict(hour) for hour in hours]), encoding="utf-8")
    return hours


class Feed:
    """The feed as the producer reads it."""

    def __init__(self, directory: Path) -> None:
        index = json.loads((directory / INDEX).read_text(encoding="utf-8"))
        self.hours = [Hour(**hour) for hour in index]
        self._file = (directory / FEED).open("rb")

    def close(self) -> None:
        self._file.close()

    def lines(self, hour: Hour) -> list[bytes]:
        """The hour's flights, encoded."""
        self._file.seek(hour.start)
        return [self._file.readline().rstrip(b"\n") for _ in range(hour.rows)]
