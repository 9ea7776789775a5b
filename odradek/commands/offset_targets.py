"""Arguments of ``odradek groups reset``, as the client expects them."""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from odradek import client

if TYPE_CHECKING:
    from collections.abc import Sequence

DURATION = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
"""An ISO 8601 duration without years and months, whose lengths differ. It is Java's Duration and weeks."""
FILE_COLUMNS = 3


def parse_scope(topics: Sequence[str]) -> dict[str, list[int]]:
    """Parse TOPIC or TOPIC:PARTITION,... into partition indexes by topic, all partitions if there are none.

    Raise InvalidArgument if a partition is no number.
    """
    scope: dict[str, list[int]] = {}
    whole = []
    for each in topics:
        name, _, indexes = each.partition(":")
        scope.setdefault(name, []).extend(parse_number(text, "partition") for text in indexes.split(",") if indexes)
        if not indexes:
            whole.append(name)
    return {name: [] if name in whole else indexes for name, indexes in scope.items()}


def parse_moment_ms(text: str) -> int:
    """Parse an ISO 8601 time, in UTC unless it has an offset, into milliseconds since 1970. Raise InvalidArgument if it is none."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        problem = f"--to-datetime {text}: expected a time such as 2026-11-21T17:42:00.000"
        raise client.InvalidArgument(problem) from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_duration_ms(text: str) -> int:
    """Parse an ISO 8601 duration into the time that lies that long before now. Raise InvalidArgument if it is none."""
    matched = DURATION.fullmatch(text)
    if matched is None or not any(matched.groups()):
        raise client.InvalidArgument(f"--by-duration {text}: expected a duration such as PT1H30M or P2D")
    weeks, days, hours, minutes, seconds = (float(part or 0) for part in matched.groups())
    try:
        ago = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        return int((datetime.now(UTC) - ago).timestamp() * 1000)
    except OverflowError as error:
        raise client.InvalidArgument(f"--by-duration {text}: there was no time so long ago") from error


def read_offsets(path: str) -> dict[client.TopicPartition, int]:
    """Read lines of topic,partition,offset, as kafka-consumer-groups --export writes them. Raise InvalidArgument if one is malformed."""
    offsets: dict[client.TopicPartition, int] = {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as lines:
            for number, row in enumerate(csv.reader(lines), 1):
                if not row:
                    continue
                what = f"{path}, line {number}"
                if len(row) != FILE_COLUMNS:
                    raise client.InvalidArgument(f"{what}: expected topic,partition,offset")
                key = client.TopicPartition(row[0].strip(), parse_number(row[1], what))
                offsets[key] = parse_number(row[2], what)
    except OSError as error:
        raise client.InvalidArgument(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise client.InvalidArgument(f"{path}: {error}") from error
    return offsets


def parse_number(text: str, what: str) -> int:
    """Parse a number. Raise InvalidArgument if it is none."""
    try:
        return int(text)
    except ValueError as error:
        raise client.InvalidArgument(f"{what} {text}: expected a number") from error
