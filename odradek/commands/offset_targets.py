"""Parsers for arguments that name partitions, offsets and times."""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from odradek import client
from odradek.commands.options import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

DURATION = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
"""An ISO 8601 duration, as Java's Duration and with weeks. Years and months are excluded: their lengths vary."""
FILE_COLUMNS = 3


def parse_scope(topics: Sequence[str]) -> dict[str, list[int]]:
    """Parse TOPIC or TOPIC:PARTITION,... into lists of partition indexes by topic. An empty list means all partitions.

    Raise InvalidArgument if a partition is not a number, or if none follows the colon: a script whose variable is empty
    must not select all partitions.
    """
    scope: dict[str, list[int]] = {}
    whole = []
    for topic in topics:
        name, colon, indexes = topic.partition(":")
        if colon and not indexes.strip(","):
            raise client.InvalidArgument(f"{topic}: no partition after the colon; name one, or remove the colon")
        scope.setdefault(name, []).extend(
            parse_number(text, "partition", 0, INT32_MAX) for text in indexes.split(",") if colon
        )
        if not colon:
            whole.append(name)
    return {name: [] if name in whole else indexes for name, indexes in scope.items()}


def parse_moment_ms(text: str) -> int:
    """Parse an ISO 8601 time into milliseconds since 1970; 0 if it is before 1970. A time without UTC offset is in UTC.

    Raise InvalidArgument if the text is not such a time.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        problem = f"--to-datetime {text}: expected a time such as 2026-11-21T17:42:00.000"
        raise client.InvalidArgument(problem) from error
    return since_1970_ms(time if time.tzinfo else time.replace(tzinfo=UTC))


def parse_duration_ms(text: str) -> int:
    """Parse an ISO 8601 duration. Return the time that long before now, in milliseconds since 1970, at least 0.

    Raise InvalidArgument if the text is not a duration, or if the time is before the year 1.
    """
    matched = DURATION.fullmatch(text)
    if matched is None or not any(matched.groups()):
        raise client.InvalidArgument(f"--by-duration {text}: expected a duration such as PT1H30M or P2D")
    weeks, days, hours, minutes, seconds = (float(part or 0) for part in matched.groups())
    try:
        ago = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        return since_1970_ms(datetime.now(UTC) - ago)
    except OverflowError as error:
        raise client.InvalidArgument(
            f"--by-duration {text}: the start is before the year 1; use a shorter duration"
        ) from error


def since_1970_ms(time: datetime) -> int:
    """Return milliseconds since 1970, at least 0: negative times in a ListOffsets request select ends of the log."""
    return max(0, int(time.timestamp() * 1000))


def read_offsets(path: str) -> dict[client.TopicPartition, int]:
    """Read a file with lines of topic,partition,offset, as kafka-consumer-groups --export prints them.

    Raise InvalidArgument if a line is malformed, or if the file cannot be read.
    """
    offsets: dict[client.TopicPartition, int] = {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as lines:
            for number, row in enumerate(csv.reader(lines), 1):
                if not row:
                    continue
                origin = f"{path}, line {number}"
                if len(row) != FILE_COLUMNS:
                    raise client.InvalidArgument(f"{origin}: expected topic,partition,offset")
                key = client.TopicPartition(row[0].strip(), parse_number(row[1], f"{origin}: partition", 0, INT32_MAX))
                offsets[key] = parse_number(row[2], f"{origin}: offset", -INT64_MAX, INT64_MAX)
    except OSError as error:
        raise client.InvalidArgument(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise client.InvalidArgument(f"{path}: {error}") from error
    return offsets


def parse_number(text: str, origin: str, low: int, high: int) -> int:
    """Parse an integer from `low` to `high`. Raise InvalidArgument, with `origin` in its message, for other texts."""
    try:
        number = int(text)
    except ValueError as error:
        raise client.InvalidArgument(f"{origin} {text}: expected a number") from error
    if not low <= number <= high:
        raise client.InvalidArgument(f"{origin} {text}: expected a number from {low} to {high}")
    return number
